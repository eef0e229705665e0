"""What the runs gave: distances from the plain loop, lines of code, and the accuracy reported."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.common.code_lines import lines_of
from benchmarks.common.processes import Failed
from benchmarks.frameworks.correctness.outputs import apart, true_accuracy
from benchmarks.frameworks.correctness.runs import (
    CASES,
    JOBS,
    NULL,
    PLAIN,
    SETTINGS,
    WAYS,
    Way,
    trained,
)
from paceline.report.drawing.chart import FAMILY_COLORS, drawing_packages

EQUAL = 1e-4
"""A distance up to it is shown as equal."""
ROUNDING = 2e-3
"""A distance up to it may be rounding: the ResNet's plain loop with the samples of each batch in
eight other orders was up to 1.2e-3 apart, when an activation crosses zero."""
RECORDED = (("recorded",), r"\brecord(ed)?\b|import QUIET")
"""What hands over the result to this benchmark, and does not count as a line."""


@dataclass(frozen=True)
class Row:
    """One framework's run of a case under a setting."""

    case: str
    way: str
    setting: str
    distance: float | None
    """From the plain loop's outputs, relative to how far training moved them; None: failed."""
    steps: int = 0
    plain_steps: int = 0
    reported_accuracy: float | None = None
    true_accuracy: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Results:
    """All rows, and what is to be known of them."""

    date: str
    machine: str
    versions: dict[str, str]
    lines: dict[str, dict[str, int]]
    """By case and way."""
    rows: list[Row]

    @classmethod
    def of(cls, output: Path, date: str, machine: str, versions: dict[str, str]) -> Self:
        """Compare the runs in a folder."""
        lines = {
            case: {way.name: counted(case, way) for way in (PLAIN, *WAYS) if way != NULL}
            for case in CASES
        }
        return cls(date, machine, versions, lines, list(_rows(output)))

    def write(self, file: Path) -> None:
        """Write all of it as JSON."""
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `write` wrote."""
        stored = json.loads(file.read_text())
        return cls(**stored | {"rows": [Row(**row) for row in stored["rows"]]})

    def markdown(self) -> str:
        """Return the two tables for the page, and the caption."""
        names = [way.name for way in WAYS if way != NULL]
        tables = [
            _table(
                ["lines of code", PLAIN.name, *names],
                [
                    [case, *(str(self.lines[case][name]) for name in (PLAIN.name, *names))]
                    for case in CASES
                ],
            ),
            _table(
                ["outputs apart from the plain loop's", "setting", "null", *names],
                [
                    [
                        case,
                        setting.title,
                        f"{100 * (self._row(case, NULL.name, str(setting)).distance or 0):.2g} %",
                        *(self._shown(case, name, str(setting)) for name in names),
                    ]
                    for case in CASES
                    for setting in SETTINGS
                ],
            ),
            _table(
                ["accuracy reported (true), 100 samples", *names],
                [
                    [setting.title, *(self._accuracy(name, str(setting)) for name in names)]
                    for setting in SETTINGS
                ],
            ),
        ]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        caption = f"Measured {self.date}: {self.machine}; {versions}."
        return "\n\n".join([*tables, caption])

    def draw(self, path: Path) -> None:
        """Draw the distances as bars, one part for each setting."""
        altair, vl_convert = drawing_packages()
        names = [way.name for way in WAYS if way != NULL]
        titles = {str(setting): setting.title for setting in SETTINGS}
        values = [
            {
                "case": row.case,
                "framework": row.way,
                "setting": titles[row.setting],
                "percent": 100 * row.distance,
            }
            for row in self.rows
            if row.distance is not None and row.way != NULL.name
        ]
        chart = (
            altair.Chart(altair.Data(values=values), width=190, height=220)
            .mark_bar()
            .encode(
                x=altair.X("case:N", title=None, sort=list(CASES)),
                xOffset=altair.XOffset("framework:N", sort=names),
                y=altair.Y("percent:Q", title="apart from the plain loop, %"),
                color=altair.Color("framework:N", sort=names, title=None).scale(
                    domain=names, range=list(FAMILY_COLORS[: len(names)])
                ),
                column=altair.Column("setting:N", title=None, sort=list(titles.values())),
            )
        )
        path.write_text(vl_convert.vegalite_to_svg(chart.to_dict()))

    def _row(self, case: str, way: str, setting: str) -> Row:
        (row,) = (
            row for row in self.rows if (row.case, row.way, row.setting) == (case, way, setting)
        )
        return row

    def _shown(self, case: str, way: str, setting: str) -> str:
        row = self._row(case, way, setting)
        if row.distance is None:
            return "fails"
        shown = "equal" if row.distance <= EQUAL else f"{100 * row.distance:.2g} %"
        return shown if row.steps == row.plain_steps else f"{shown}, {row.steps} steps"

    def _accuracy(self, way: str, setting: str) -> str:
        row = self._row("resnet", way, setting)
        if row.reported_accuracy is None or row.true_accuracy is None:
            return "fails"
        return f"{row.reported_accuracy:.4f} ({row.true_accuracy:.4f})"


def counted(case: str, way: Way) -> int:
    """Return the lines of code that a user of this framework writes for a case."""
    return lines_of(JOBS / case / way.script, *RECORDED)


def _rows(output: Path) -> Iterator[Row]:
    for case in CASES:
        for setting in SETTINGS:
            plain = trained(PLAIN, case, setting, output)
            for way in WAYS:
                try:
                    found = trained(way, case, setting, output)
                except Failed as error:
                    yield Row(case, way.name, str(setting), None, error=str(error))
                    continue
                yield Row(
                    case,
                    way.name,
                    str(setting),
                    apart(case, found.weights, plain.weights),
                    int(found.figures["steps"]),
                    int(plain.figures["steps"]),
                    found.figures.get("accuracy"),
                    true_accuracy(found.weights) if case == "resnet" else None,
                )


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    ruler = "|---" * len(columns) + "|"
    return "\n".join(
        ["| " + " | ".join(row) + " |" for row in (columns,)]
        + [ruler]
        + ["| " + " | ".join(row) + " |" for row in rows]
    )
