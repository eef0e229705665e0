"""What went wrong in a run that went on: counted, and in words."""

from collections import Counter

from paceline.specs import Lost, Refused, Regrouped, Slow


class FaultCounts:
    """Takes a run's faults, in whatever order."""

    def __init__(self) -> None:
        self._lost: set[tuple[int, int]] = set()
        self._count = Counter[str]()
        self._regroup_seconds = 0.0

    def take(self, event: Lost | Regrouped | Slow | Refused) -> tuple[dict[str, float], str]:
        """Those of `digest.FIGURES` that are new, and what happened in a sentence."""
        match event:
            case Lost():
                # Where worker 0 is lost, two may say who else is.
                self._lost.add((event.generation, event.rank))
                note = f"worker {event.rank} on {event.lost_node} was lost: {event.why}"
                return {"faults/lost_workers": len(self._lost)}, note
            case Regrouped():
                self._regroup_seconds += event.seconds
                note = f"{event.workers} workers go on from step {event.step}: {event.why}"
                seconds = {"faults/regroup_seconds": self._regroup_seconds}
                return self._one_more("regroups") | seconds, note
            case Slow():
                note = f"worker {event.rank} on {event.slow_node} is slow: {event.why}"
                return self._one_more("slow_workers"), note
            case Refused():
                ranks = ", ".join(map(str, event.ranks))
                note = f"step {event.step} was refused ({event.what}), by workers {ranks}"
                return self._one_more("refused_steps"), f"{note}: {event.message}"

    def _one_more(self, name: str) -> dict[str, float]:
        self._count[name] += 1
        return {f"faults/{name}": self._count[name]}
