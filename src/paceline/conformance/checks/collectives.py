"""Bandwidth of collectives among all workers, by message size, as a probe measures it."""

from paceline.conformance.check import Check, Outcome, failed, passed
from paceline.conformance.session import Session
from paceline.specs.measurements.probe import CollectiveTime
from paceline.specs.units import size


def _run(session: Session) -> Outcome:
    workers = session.workers
    times = [each for each in session.probed.collectives if each.members == workers]
    found: dict[str, dict[int, float]] = {}
    for each in times:
        if each.operation != "send":
            found.setdefault(each.operation, {})[each.nbytes] = _bus_rate(each)
    if len(found) < 3:
        return failed("the probe measured no collectives")
    peaks = {name: max(rates.values()) for name, rates in found.items()}
    words = ", ".join(f"{name} {size(round(rate))}/s" for name, rate in peaks.items())
    return passed(
        f"{words} (bus bandwidth of {workers} workers)", bus_bytes_per_second_by_size=found
    )


def _bus_rate(time: CollectiveTime) -> float:
    """Return the bandwidth that the slowest link needs at least, as nccl-tests define it."""
    parts = (time.members - 1) / time.members
    moved = 2.0 * parts if time.operation == "all-reduce" else parts
    return moved * time.nbytes / time.seconds


CHECK = Check(
    name="collectives",
    about="bandwidth of all-reduce, all-gather and reduce-scatter",
    run=_run,
    typical_seconds=25,
    least_workers=2,
)
