"""Tables, for the page, the PDF, LaTeX and CSV files."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.report.reading.failure_cause import plain

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
    """A table formatted for display."""

    title: str
    names: Sequence[str]
    """Column headings."""
    rows: Sequence[Sequence[str]]
    words: Sequence[str] = ()
    """The columns that are aligned left; all others are aligned right, as numbers."""
    caption: str = ""
    wide: Sequence[str] = ()
    """Columns that a phone does not show."""
    grades: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """By row and column: `failed`, `slow` or `finished` colors a cell, `marked` highlights it."""

    @property
    def left(self) -> list[bool]:
        """Whether each column is aligned left."""
        return [name in self.words for name in self.names]

    @property
    def classes(self) -> list[str]:
        """The CSS classes of each column."""
        return [
            " ".join(["number"] * (name not in self.words) + ["wide"] * (name in self.wide))
            for name in self.names
        ]


def latex(text: str) -> str:
    """Escape a text for LaTeX."""
    return plain(text).translate(_LATEX)


def to_latex(table: Table) -> str:
    r"""Return a table that needs `\usepackage{booktabs}` only."""
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
    """Flatten nested tables to pairs such as `layout.replicas` and its value; skip unset ones."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{lead}{key}.")
        elif value is not None:
            yield f"{lead}{key}", str(value)


def to_csv(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV with a header; `None` is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def rows_to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows that all have the same keys as CSV."""
    return to_csv(list(rows[0]) if rows else [], (row.values() for row in rows))
