"""What came of many faults: as JSON, and one row of figures for each kind."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.chaos.faults.kinds import KINDS


@dataclass(frozen=True)
class Outcome:
    """One fault, and how the run came back from it."""

    setting: str
    seed: int
    number: int
    kind: str
    ways: tuple[str, ...]
    """What the new generation began with: `members`, `peers`, `checkpoint`, …; empty where there
    was none."""
    seconds: float
    """To the first step of a new generation; where there was none, the longest time between two
    steps from the fault on."""
    steps_again: int


@dataclass(frozen=True)
class Finished:
    """One run with faults."""

    setting: str
    seed: int
    faults: int
    planned: int
    seconds: float
    date: str
    samples: int
    """That counted."""
    wrong_samples: int
    """That were lost, or counted more than once."""


@dataclass(frozen=True)
class Broken:
    """An invariant that a run violated."""

    setting: str
    seed: int
    rule: str
    message: str


@dataclass(frozen=True)
class Row:
    """All faults of a kind."""

    kind: str
    times: int
    ways: dict[str, int]
    p50_seconds: float
    p95_seconds: float
    max_seconds: float
    mean_steps_again: float
    max_steps_again: int
    wrong_samples: int
    """Of all runs in which it came."""


@dataclass
class Results:
    """All that was found."""

    machine: str
    runs: list[Finished] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """One for each kind that came, in the order in which kinds are listed."""
        found = {
            kind: [each for each in self.outcomes if each.kind == kind]
            for kind in KINDS
            if any(each.kind == kind for each in self.outcomes)
        }
        return [
            _row(kind, outcomes, self._wrong_samples(outcomes)) for kind, outcomes in found.items()
        ]

    def _wrong_samples(self, outcomes: Iterable[Outcome]) -> int:
        where = {(each.setting, each.seed) for each in outcomes}
        return sum(run.wrong_samples for run in self.runs if (run.setting, run.seed) in where)

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Results":
        """What was written."""
        known = json.loads(path.read_text())
        return cls(
            known["machine"],
            [Finished(**each) for each in known["runs"]],
            [Outcome(**each | {"ways": tuple(each["ways"])}) for each in known["outcomes"]],
            [Broken(**each) for each in known["broken"]],
        )

    @classmethod
    def merged(cls, several: Sequence["Results"]) -> "Results":
        """What several campaigns found, as if it had been one."""
        return cls(
            "; ".join(dict.fromkeys(each.machine for each in several)),
            [run for each in several for run in each.runs],
            [outcome for each in several for outcome in each.outcomes],
            [broken for each in several for broken in each.broken],
        )


def _row(kind: str, outcomes: Sequence[Outcome], wrong_samples: int) -> Row:
    seconds = sorted(each.seconds for each in outcomes)
    again = [each.steps_again for each in outcomes]
    ways = Counter(way for each in outcomes for way in each.ways or ("went on",))
    return Row(
        kind=kind,
        times=len(outcomes),
        ways=dict(ways.most_common()),
        p50_seconds=statistics.median(seconds),
        p95_seconds=seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))],
        max_seconds=seconds[-1],
        mean_steps_again=statistics.mean(again),
        max_steps_again=max(again),
        wrong_samples=wrong_samples,
    )
