"""Tables that are the same on paper, in LaTeX and in files."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.report.reading.failure import plain

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "–": "--",
        "±": r"\textpm{}",
        "\n": " ",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


@dataclass(frozen=True)
class Table:
    """What people read, line by line."""

    title: str
    names: Sequence[str]
    """Of the columns."""
    rows: Sequence[Sequence[str]]
    words: Sequence[str] = ()
    """The columns that stand at the left; numbers stand at the right."""
    caption: str = ""

    @property
    def left(self) -> list[bool]:
        """Of each column, whether it stands at the left."""
        return [name in self.words for name in self.names]


def latex(text: str) -> str:
    """Text of which LaTeX reads no sign as a command."""
    return plain(text).translate(_LATEX)


def to_latex(table: Table) -> str:
    r"""A table that needs `\usepackage{booktabs}` and nothing else."""
    columns = "".join("l" if left else "r" for left in table.left)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{latex(table.caption)}}}",
            f"  \\begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {' & '.join(map(latex, table.names))} \\\\",
            r"    \midrule",
            *(f"    {' & '.join(map(latex, row))} \\\\" for row in table.rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def flat(table: Mapping[str, Any], lead: str = "") -> Iterator[tuple[str, str]]:
    """What a table of tables has, as `layout.replicas` and its value; what is unset is left out."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{lead}{key}.")
        elif value is not None:
            yield f"{lead}{key}", str(value)


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """With a line of names first; what is None is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
