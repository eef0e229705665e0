"""Checkpoints: their cost, and those that could not be written or are damaged."""

from collections.abc import Sequence

from paceline.report.drawing.brief import Content
from paceline.report.drawing.tables import Table
from paceline.report.run.interruption_figures import (
    CheckpointFigures,
    TroubleFigures,
    checkpoint_figures,
    trouble_figures,
)
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import units
from paceline.specs.base import Spec

MOST_TROUBLE = 20


class Figures(Spec):
    """The checkpoint fields of `--json`."""

    checkpoints: CheckpointFigures
    trouble: list[TroubleFigures]


class _Checkpoints(Section[Figures]):
    order = 50

    def figures(self, run: ReportedRun) -> Figures:
        return Figures(
            checkpoints=checkpoint_figures(run.state), trouble=trouble_figures(run.state)
        )

    def content(self, run: ReportedRun, figures: Figures) -> Content | None:
        sentence, trouble = checkpoint_sentence(figures.checkpoints), figures.trouble
        if not (sentence or trouble):
            return None
        notes = []
        if trouble:
            bad = units.count(len(trouble), "checkpoint")
            notes.append(f"{bad} could not be written or failed verification: see Checkpoints.")
        return Content(
            title="Checkpoints",
            words=[sentence] if sentence else [],
            tables=[_table(trouble)] if trouble else [],
            notes=notes,
        )


SECTION = _Checkpoints()


def checkpoint_sentence(figures: CheckpointFigures) -> str:
    """Return number, size and cost of the checkpoints in words; empty without checkpoints."""
    if figures.last_step is None or figures.write_seconds is None:
        return ""
    many = figures.count > 1
    words = (
        f"{units.count(figures.count, 'checkpoint')}{', the last' * many} of step"
        f" {figures.last_step:,} with {units.size(figures.bytes)}."
        f" {'Each' if many else 'It'} was complete after {units.duration(figures.write_seconds)}"
        f"{' on average' if many else ''}, while training continued"
    )
    if figures.stall_seconds:
        words += f"; training was stalled for {units.duration(figures.stall_seconds)}"
        words += " in total" * many
        if figures.stall_share is not None:
            words += f", {units.percent(figures.stall_share)} of its time"
    words += "."
    if figures.unchanged_bytes and figures.bytes:
        share = figures.unchanged_bytes / figures.bytes
        words += (
            f" At least {units.size(figures.unchanged_bytes)} ({units.percent(share)}) of the last"
            " one had not changed and is linked from the one before."
        )
    return words


def _table(trouble: Sequence[TroubleFigures]) -> Table:
    shown = trouble[-MOST_TROUBLE:]
    rows = [
        (
            units.moment(each.time),
            units.or_dash(each.step),
            "damaged" if each.kind == "damaged" else "not written",
            ("" if each.worker is None else f"worker {each.worker}: ") + each.message,
        )
        for each in shown
    ]
    caption = f"The last {len(shown)} of {len(trouble)}." if len(shown) < len(trouble) else ""
    names = ("When (UTC)", "Step", "What", "File and cause")
    grades = {(number, 2): "failed" for number in range(len(rows))}
    words = ("When (UTC)", "What", "File and cause")
    return Table("Checkpoints", names, rows, words, caption, grades=grades)
