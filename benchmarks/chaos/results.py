"""What came of many faults: one row for each kind, as JSON, as a table, as a page."""

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.kinds import KINDS


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
class Broken:
    """A promise that was not kept."""

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


@dataclass
class Results:
    """All that was found."""

    machine: str
    runs: list[dict[str, Any]] = field(default_factory=list)
    """Of each: setting, seed, faults, seconds."""
    outcomes: list[Outcome] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """One for each kind that came, in the order in which kinds are listed."""
        found = {
            kind: [each for each in self.outcomes if each.kind == kind]
            for kind in KINDS
            if any(each.kind == kind for each in self.outcomes)
        }
        return [_row(kind, outcomes) for kind, outcomes in found.items()]

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Results":
        """What was written."""
        known = json.loads(path.read_text())
        return cls(
            known["machine"],
            known["runs"],
            [Outcome(**each | {"ways": tuple(each["ways"])}) for each in known["outcomes"]],
            [Broken(**each) for each in known["broken"]],
        )


def _row(kind: str, outcomes: Sequence[Outcome]) -> Row:
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
    )
