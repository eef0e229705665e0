"""Count the faults that a run survives, and describe them in words."""

from collections import Counter

from paceline.specs import Lost, Refused, Regrouped, SickDevice, Slow


class FaultCounts:
    """Counts a run's faults, in any order."""

    def __init__(self) -> None:
        self._lost: set[tuple[int, int]] = set()
        self._count = Counter[str]()
        self._regroup_seconds = 0.0

    def take(
        self, event: Lost | Regrouped | Slow | Refused | SickDevice
    ) -> tuple[dict[str, float], str]:
        """Return the new values of `digest.FIGURES`, and a sentence about the event."""
        match event:
            case Lost():
                # If worker 0 is lost, two workers may report the other losses.
                self._lost.add((event.generation, event.rank))
                note = f"worker {event.rank} on {event.lost_node} was lost: {event.why}"
                return {"faults/lost_workers": len(self._lost)}, note
            case Regrouped():
                self._regroup_seconds += event.seconds
                note = f"{event.workers} workers continue from step {event.step}: {event.why}"
                seconds = {"faults/regroup_seconds": self._regroup_seconds}
                return self._one_more("regroups") | seconds, note
            case Slow():
                note = f"worker {event.rank} on {event.slow_node} is slow: {event.why}"
                return self._one_more("slow_workers"), note
            case SickDevice():
                note = f"{event.device} of {event.node} failed: {event.why}"
                return self._one_more("failed_devices"), note
            case Refused():
                ranks = ", ".join(map(str, event.ranks))
                note = f"step {event.step} was refused ({event.what}) because of workers {ranks}"
                return self._one_more("refused_steps"), f"{note}: {event.message}"

    def _one_more(self, name: str) -> dict[str, float]:
        self._count[name] += 1
        return {f"faults/{name}": self._count[name]}
