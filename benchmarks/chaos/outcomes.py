"""From a run's folder to what came of each of its faults."""

from itertools import pairwise

from benchmarks.chaos.check.evidence import Evidence, Line
from benchmarks.chaos.results import Outcome


def outcomes(evidence: Evidence) -> list[Outcome]:
    """Of every fault that was recovered from."""
    recovered = {line["number"]: line for line in evidence.told("recovered")}
    found = []
    for fault in evidence.told("injected"):
        after = recovered.get(fault["number"])
        if after is not None:
            first, last = fault["generation"], after["generation"]
            ways = _ways(evidence, first, last)
            found.append(
                Outcome(
                    setting=evidence.run["setting"],
                    seed=evidence.run["seed"],
                    number=fault["number"],
                    kind=fault["kind"],
                    ways=tuple(sorted(set(ways.values()))),
                    seconds=_seconds(evidence, fault, after, ways),
                    steps_again=_steps_again(evidence, first, last),
                )
            )
    return found


def _ways(evidence: Evidence, first: int, last: int) -> dict[int, str]:
    """Where those generations after `first` up to `last` had their state from that somebody was
    lost before; not those that somebody came back to."""
    regroups = evidence.events_of("regrouped")
    regrouped = {event["generation"]: event["source"] for event in regroups if event["lost"]}
    alive = {event["generation"] for event in regroups}  # who lives may read a checkpoint, too
    resumed = {
        event["generation"]: "restart"
        for event in evidence.events_of("resumed")
        if event["generation"] not in alive
    }
    return {
        generation: way
        for generation, way in (resumed | regrouped).items()
        if first < generation <= last
    }


def _seconds(evidence: Evidence, fault: Line, after: Line, ways: dict[int, str]) -> float:
    began = [line["at"] for line in evidence.told("generation") if line["generation"] in ways]
    if began:
        return float(max(began[0] - fault["at"], 0.0))
    times = sorted(line.at for line in evidence.step_lines if fault["at"] <= line.at <= after["at"])
    return max((later - earlier for earlier, later in pairwise([fault["at"], *times])), default=0.0)


def _steps_again(evidence: Evidence, first: int, last: int) -> int:
    """Steps that were taken and taken again: as the workers told it when they regrouped, else as
    they wrote it down."""
    told = {
        event["generation"]: int(event["steps_again"])
        for event in evidence.events_of("regrouped")
        if first < event["generation"] <= last
    }
    if told:
        return sum(told.values())
    again = 0
    for generation, parts in evidence.ledger.items():
        if first <= generation < last:
            taken = {line.step for line in evidence.step_lines if line.generation == generation}
            following = min(later for later in evidence.ledger if later > generation)
            kept = evidence.ledger[following][0][0]["resumed"]
            again += sum(step > kept for step in taken)
        del parts
    return again
