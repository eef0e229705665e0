"""Protections that were off while the run trained: peer copies, checkpoints, events, energy."""

from collections.abc import Sequence

from paceline.report.drawing.brief import Content
from paceline.report.drawing.tables import Table
from paceline.report.run.protection_figures import LapseFigures, lapse_figures, off_sentences
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import units

MOST_LAPSES = 50
LONGEST_REASON = 500


class _Protection(Section[list[LapseFigures]]):
    order = 55
    key = "protection"

    def figures(self, run: ReportedRun) -> list[LapseFigures]:
        return lapse_figures(run.state)

    def content(self, run: ReportedRun, figures: list[LapseFigures]) -> Content | None:
        if not figures:
            return None
        off = [units.shortened(each, LONGEST_REASON) for each in off_sentences(run.state.off)]
        return Content(
            title="Protection",
            words=[f"{'At the end' if run.state.over else 'Now'}: {each}." for each in off],
            tables=[_table(figures)],
            notes=["A protection of the run was off for a time: see Protection."],
        )


SECTION = _Protection()


def _table(lapses: Sequence[LapseFigures]) -> Table:
    shown = lapses[-MOST_LAPSES:]
    rows = [
        (
            units.moment(each.time),
            each.protection,
            each.node if each.worker is None else f"worker {each.worker} on {each.node}",
            "–" if each.step is None else f"{each.step:,}",
            _until(each),
            units.shortened("; ".join(filter(None, (each.why, each.note))), LONGEST_REASON),
        )
        for each in shown
    ]
    caption = f"The last {len(shown)} of {len(lapses):,}." if len(shown) < len(lapses) else ""
    names = ("Off since (UTC)", "Protection", "Where", "Step", "Until", "Why")
    words = ("Off since (UTC)", "Protection", "Where", "Until", "Why")
    grades = {(row, 1): "failed" for row, each in enumerate(shown) if each.off}
    return Table("Protection", names, rows, words, caption, grades=grades)


def _until(lapse: LapseFigures) -> str:
    if lapse.off:
        return "still off"
    if lapse.seconds is None:
        return "the next generation"
    step = "" if lapse.restored_step is None else f"step {lapse.restored_step:,}, "
    return f"{step}after {units.duration(lapse.seconds)}"
