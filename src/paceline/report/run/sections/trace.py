"""Traced steps: how much communication was overlapped with computation."""

from statistics import fmean

from paceline.report.drawing.brief import Content
from paceline.report.drawing.tables import Table
from paceline.report.reading.run_state import RunState
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import Traced, units
from paceline.specs.base import Spec


class TraceFigures(Spec):
    """Communication time of a step, mean over the traced workers."""

    first: int
    """The number of the first traced step."""
    steps: int
    step_seconds: float
    communication_seconds: float
    overlapped_seconds: float
    """The part of it that overlapped with computation."""
    exposed_seconds: float
    """The exposed part of it."""
    workers: list[Traced]
    """By rank."""

    @property
    def sentence(self) -> str:
        """`In steps 6 to 8, … communication took 12 ms of a step's 40 ms: 75 % overlapped …`"""
        last = self.first + self.steps - 1
        when = f"steps {self.first} to {last}" if self.steps > 1 else f"step {last}"
        recorded = f"In {when}, traced on {units.count(len(self.workers), 'worker')},"
        if not self.communication_seconds:
            return f"{recorded} there was no communication."
        overlapped = units.percent(self.overlapped_seconds / self.communication_seconds)
        return (
            f"{recorded} communication took {units.milliseconds(self.communication_seconds)} ms"
            f" of a step's {units.milliseconds(self.step_seconds)} ms: {overlapped} overlapped"
            f" with computation, {units.milliseconds(self.exposed_seconds)} ms exposed."
        )


def trace_figures(state: RunState) -> TraceFigures | None:
    """Return the mean over all traced workers, or None if no worker was traced."""
    workers = state.traced
    if not workers:
        return None
    return TraceFigures(
        first=workers[0].first,
        steps=workers[0].steps,
        step_seconds=fmean(each.step_seconds for each in workers),
        communication_seconds=fmean(each.communication_seconds for each in workers),
        overlapped_seconds=fmean(each.overlapped_seconds for each in workers),
        exposed_seconds=fmean(each.exposed_seconds for each in workers),
        workers=workers,
    )


class _Trace(Section[TraceFigures | None]):
    order = 20
    key = "trace"

    def figures(self, run: ReportedRun) -> TraceFigures | None:
        return trace_figures(run.state)

    def content(self, run: ReportedRun, figures: TraceFigures | None) -> Content | None:
        if figures is None:
            return None
        more = "`paceline trace` writes these steps of all workers on one clock, for Perfetto."
        return Content(
            title="Overlapped and exposed communication",
            words=[f"{figures.sentence} {more}"],
            tables=[_table(figures)],
        )


SECTION = _Trace()


def _table(figures: TraceFigures) -> Table:
    clock = "Clock ahead of worker 0's, ms"
    rows = [
        (
            str(each.rank),
            each.node,
            units.milliseconds(each.communication_seconds),
            units.milliseconds(each.overlapped_seconds),
            units.milliseconds(each.exposed_seconds),
            f"{1e3 * each.clock_offset_seconds:.3f} ± {1e3 * each.clock_uncertainty_seconds:.3f}",
        )
        for each in figures.workers
    ]
    names = ("Worker", "Node", "Communication ms/step", "Overlapped ms", "Exposed ms", clock)
    return Table("Communication", names, rows, ("Node",), wide=(clock,))
