"""Goodput: the share of a run's time in steps that count, and where the rest went."""

import math
from statistics import median

from paceline.report.reading.run_state import RunState
from paceline.specs import Refused, units
from paceline.specs.base import Spec

ENOUGH_STEPS = 1000
"""Use about this many steps for the median: sorting a long run is too slow for a live view."""


class GoodputFigures(Spec):
    """The time from the beginning of the first step to the end of the last, divided into parts
    that add up to it."""

    share: float | None
    """`training_seconds` over `wall_seconds`; None before the first step."""
    wall_seconds: float
    training_seconds: float
    """Time in steps that count."""
    regroup_seconds: float
    """Time without training until the survivors continued."""
    restart_seconds: float
    """Time without training until the run was restarted, including time in the queue."""
    again_seconds: float
    """Time in steps that were repeated later."""
    refused_seconds: float
    """Time in refused steps, estimated at the median step time each."""
    other_seconds: float
    """Time between steps, without a fault."""

    @property
    def lost_seconds(self) -> float:
        """Time lost to faults."""
        return (
            self.regroup_seconds + self.restart_seconds + self.again_seconds + self.refused_seconds
        )


def goodput_figures(state: RunState) -> GoodputFigures:
    """Return the goodput of a run so far, by the clock of worker 0's node."""
    found = state.interruptions
    away = {
        regrouped: math.fsum(
            each.away_seconds or 0.0 for each in found if (each.regrouped is not None) is regrouped
        )
        for regrouped in (True, False)
    }
    again = math.fsum(each.again_seconds for each in found)
    unwritten = math.fsum(each.unwritten_seconds for each in found)
    counted = math.fsum(state.seconds) + unwritten
    # Clocks may jump and differ between nodes; durations within one process are reliable.
    wall = max(_between(state), counted + again + math.fsum(away.values()))
    rest = max(0.0, wall - again - math.fsum(away.values()))
    refused = min(rest, refused_step_seconds(state) * _refused(state))
    # Workers measure from step to step, so a refused step's time is in the step after it.
    training = min(counted, max(0.0, rest - refused))
    return GoodputFigures(
        share=min(1.0, training / wall) if wall > 0 else None,
        wall_seconds=wall,
        training_seconds=training,
        regroup_seconds=away[True],
        restart_seconds=away[False],
        again_seconds=again,
        refused_seconds=refused,
        other_seconds=max(0.0, rest - refused - training),
    )


def refused_step_seconds(state: RunState) -> float:
    """Return the assumed cost of a refused step, which is not measured: the median step time."""
    some = state.seconds[:: 1 + len(state.seconds) // ENOUGH_STEPS]
    return median(some) if some else 0.0


def goodput_sentence(figures: GoodputFigures) -> str:
    """Return a sentence about productive and lost time; empty before the first step."""
    if figures.share is None:
        return ""
    lost = {
        "in regroups": figures.regroup_seconds,
        "until the run was restarted": figures.restart_seconds,
        "in repeated steps": figures.again_seconds,
        "in refused steps (estimated)": figures.refused_seconds,
    }
    parts = [f"{units.duration(seconds)} {name}" for name, seconds in lost.items() if seconds]
    words = (
        f"Goodput {units.percent(figures.share)}:"
        f" {units.duration(figures.training_seconds)} of the"
        f" {units.duration(figures.wall_seconds)} since the first step were productive training"
    )
    if parts:
        words += f"; {units.duration(figures.lost_seconds)} were lost: {', '.join(parts)}"
    return f"{words}."


def _between(state: RunState) -> float:
    """Return the time from the first step's beginning to the last step's end or last resume."""
    began = state.first_step_time
    if began is None:
        return 0.0
    ends = [each.back_at for each in state.interruptions if each.back_at is not None]
    return max([*ends, *state.time[-1:]], default=began) - began


def _refused(state: RunState) -> int:
    return sum(isinstance(each, Refused) for each in state.faults)
