"""Interruptions: why training stopped, for how long, and where it continued."""

from collections.abc import Sequence

from paceline.report.drawing.brief import Content
from paceline.report.drawing.tables import Table
from paceline.report.run.fault_history import survived_faults
from paceline.report.run.interruption_figures import (
    InterruptionFigures,
    RegroupFigures,
    interruption_figures,
)
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import units

MOST_INTERRUPTIONS = 50


class _Interruptions(Section[list[RegroupFigures | InterruptionFigures]]):
    order = 40
    key = "interruptions"

    def figures(self, run: ReportedRun) -> list[RegroupFigures | InterruptionFigures]:
        return interruption_figures(run.state)

    def content(
        self, run: ReportedRun, figures: list[RegroupFigures | InterruptionFigures]
    ) -> Content | None:
        if not figures:
            return None
        rows = [("Interruptions", f"{len(figures):,}")]
        if survived_faults(run.state):  # the table of faults has the interruptions as well
            return Content(rows=rows)
        return Content(title="Interruptions", tables=[_table(figures)], rows=rows)


SECTION = _Interruptions()


def _table(figures: Sequence[InterruptionFigures]) -> Table:
    shown = figures[-MOST_INTERRUPTIONS:]
    rows = [
        (
            units.moment(each.time),
            each.cause,
            f"{units.or_dash(each.workers_before)} → {units.or_dash(each.workers_after)}",
            units.or_dash(each.reached_step),
            "the beginning" if each.resumed_step == 0 else units.or_dash(each.resumed_step),
            units.or_dash(each.steps_again),
            "not resumed yet" if each.away_seconds is None else units.duration(each.away_seconds),
        )
        for each in shown
    ]
    caption = "Repeated steps count once, in figures and charts."
    if len(shown) < len(figures):
        caption += f" The last {len(shown)} of {len(figures):,}."
    names = (
        *("When (UTC)", "Cause", "Workers", "Step reached", "Resumed from", "Steps repeated"),
        "Time lost",
    )
    return Table("Interruptions", names, rows, ("When (UTC)", "Cause"), caption)
