"""The live view's lines about faults that the run survived."""

from paceline.report.reading.failure_cause import plain
from paceline.report.reading.run_state import RunState
from paceline.report.run.fault_history import (
    FaultEvent,
    FaultFigures,
    fault_figures,
    source_words,
    survived_faults,
)
from paceline.specs import units

LAST_FAULTS = 2


def fault_lines(state: RunState) -> list[str]:
    """Return the worker count, the lost time and the last faults; empty without survived faults."""
    if not survived_faults(state):
        return []
    figures = fault_figures(state)
    return [_standing(figures), *map(_sentence, figures.events[-LAST_FAULTS:])]


def faults_in_short(state: RunState) -> list[str]:
    """Return the worker count and goodput in a few words, for a log line."""
    if not survived_faults(state):
        return []
    figures = fault_figures(state)
    words = [f"{figures.workers}/{figures.planned_workers} workers"]
    if figures.goodput.share is not None:
        words.append(f"goodput {units.percent(figures.goodput.share)}")
    return words


def _standing(figures: FaultFigures) -> str:
    parts = [f"{figures.workers:,} of {units.count(figures.planned_workers, 'planned worker')}"]
    good = figures.goodput
    if good.share is not None:
        parts.append(
            f"goodput {units.percent(good.share)}, {units.duration(good.lost_seconds)} lost"
        )
    counts = {
        "regroup": figures.regroups,
        "lost worker": figures.lost_workers,
        "slow worker": figures.slow_workers,
        "refused step": figures.refused_steps,
    }
    parts.append(", ".join(units.count(count, name) for name, count in counts.items() if count))
    return "  ".join(parts)


def _sentence(event: FaultEvent) -> str:
    where = "" if event.step is None else f"step {event.step}: "
    cost = [] if event.lost_seconds is None else [f"{units.duration(event.lost_seconds)} lost"]
    if event.source is not None:
        cost.append(f"state from {source_words(event.source)}")
    what = event.what.replace("_", " ") + (f" ({', '.join(cost)})" if cost else "")
    return plain(f"{where}{what}, {event.who}: {event.why}")
