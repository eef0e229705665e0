"""What workers recorded of a few steps: how much communication was hidden behind computing."""

from statistics import fmean

from paceline.report.drawing import units
from paceline.report.reading.run_state import RunState
from paceline.specs import Traced
from paceline.specs.base import Spec


class TraceFigures(Spec):
    """Communication of a step, mean over the workers that recorded."""

    first: int
    """The number of the first of the recorded steps."""
    steps: int
    step_seconds: float
    communication_seconds: float
    hidden_seconds: float
    """Of these: while the worker computed."""
    exposed_seconds: float
    """The rest of these."""
    workers: list[Traced]
    """By rank."""

    @property
    def sentence(self) -> str:
        """`In steps 6 to 8, communication took 12 ms of a step: 75 % was hidden …`"""
        last = self.first + self.steps - 1
        when = f"steps {self.first} to {last}" if self.steps > 1 else f"step {last}"
        recorded = f"In {when}, recorded by {units.count(len(self.workers), 'worker')},"
        if not self.communication_seconds:
            return f"{recorded} nothing was communicated."
        hidden = units.percent(self.hidden_seconds / self.communication_seconds)
        return (
            f"{recorded} communication took {units.milliseconds(self.communication_seconds)} ms"
            f" of a step's {units.milliseconds(self.step_seconds)} ms: {hidden} of it was hidden"
            f" behind computing, {units.milliseconds(self.exposed_seconds)} ms were exposed."
        )


def trace_figures(state: RunState) -> TraceFigures | None:
    """None where no worker recorded a trace."""
    workers = state.traced
    if not workers:
        return None
    return TraceFigures(
        first=workers[0].first,
        steps=workers[0].steps,
        step_seconds=fmean(each.step_seconds for each in workers),
        communication_seconds=fmean(each.communication_seconds for each in workers),
        hidden_seconds=fmean(each.hidden_seconds for each in workers),
        exposed_seconds=fmean(each.exposed_seconds for each in workers),
        workers=workers,
    )
