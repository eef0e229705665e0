"""What the faults cost: quantiles, the table, the goals, and what the planner says of it."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.table import Table

from benchmarks.recovery.launchers import WAYS
from benchmarks.recovery.sizes import WORKERS
from benchmarks.recovery.trials import KINDS, Fault, Goodput, Kind

GOAL_SECONDS: dict[Kind, float] = {"kill": 0.15, "node": 2.0, "hang": 2.0}
"""For 95 of 100 faults."""
GOAL_GOODPUT = 0.98
MODEL_POINTS = 0.05
"""By how much the planner's model may differ from what was measured."""
OURS = "Paceline"
READY = "Paceline, a spare"
"""What keeps its throughput when one is lost."""
BUSY = 1.0


@dataclass
class Results:
    """All that was measured."""

    load_before: float
    """The machine's load average: what else it was busy with."""
    step_milliseconds: float
    faults: list[Fault] = field(default_factory=list)
    goodputs: list[Goodput] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Ways that are not installed."""
    notes: list[str] = field(default_factory=list)

    def write(self, file: Path) -> None:
        """All of it as JSON, with the goals."""
        file.write_text(json.dumps({**asdict(self), "met": self.met()}, indent=1) + "\n")

    @classmethod
    def read(cls, file: Path) -> Self:
        """What `write` wrote."""
        said = json.loads(file.read_text())
        del said["met"]
        said["faults"] = [Fault(**each) for each in said["faults"]]
        said["goodputs"] = [Goodput(**each) for each in said["goodputs"]]
        return cls(**said)

    def of(self, way: str, kind: Kind) -> list[Fault]:
        """The faults of one kind that a way had."""
        return [each for each in self.faults if (each.way, each.kind) == (way, kind)]

    def goodput(self, way: str) -> Goodput | None:
        """Of a way, where it was measured."""
        return next((each for each in self.goodputs if each.way == way), None)

    def model(self, found: Goodput) -> float:
        """Predict the goodput under repeated kills from a single kill's stop (measured apart, where
        that was done) and from the time for which a worker is away."""
        kills = [each.seconds for each in self.of(found.way, "kill") if each.seconds is not None]
        stopped = statistics.mean(kills) if kills else found.stopped_seconds
        smaller = max(0.0, found.away_seconds - stopped) / WORKERS
        return max(0.0, 1 - (stopped + smaller) / found.every_seconds)

    def met(self) -> dict[str, bool]:
        """The goals for Paceline, of what was measured."""
        goals: dict[str, bool] = {}
        for kind, goal in GOAL_SECONDS.items():
            if faults := self.of(OURS, kind):
                slow = quantile([each.seconds for each in faults], 0.95)
                goals[f"{kind}, p95 <= {goal:g} s"] = slow is not None and slow <= goal
        if ours := [each for each in self.faults if each.way == OURS]:
            clean = all(each.lost == 0 and each.doubled == 0 for each in ours)
            goals["no sample lost or doubled"] = clean
        if found := self.goodput(READY):
            goals[f"goodput with a spare >= {GOAL_GOODPUT:.0%}"] = found.fraction >= GOAL_GOODPUT
        for found in [each for each in self.goodputs if each.way in (OURS, READY)]:
            near = abs(self.model(found) - found.fraction) <= MODEL_POINTS
            goals[f"{found.way}: the model within {100 * MODEL_POINTS:g} points"] = near
        return goals

    def show(self, console: Console) -> None:
        """The table, then goals and what is to be known."""
        rounds = max((len(self.of(way, kind)) for way in WAYS for kind in KINDS), default=0)
        table = Table(
            title=f"Fault to next committed step, seconds: p50 / p95 of at most {rounds}",
            caption=f"Measured on emulated devices, {self.step_milliseconds:g} ms a step;"
            f" load average before: {self.load_before:.1f}."
            + (" The machine was busy: times mean nothing." if self.load_before > BUSY else ""),
        )
        table.add_column("", no_wrap=True)
        for column in ("kill -9", "node lost", "hang", "back", "lost", "doubled", "goodput"):
            table.add_column(column, justify="right", no_wrap=True)
        tried = {*self.missing, *(each.way for each in self.faults)}
        tried |= {each.way for each in self.goodputs}
        for way in [each for each in WAYS if each in tried]:
            table.add_row(way, *self._row(way))
        console.print(table)
        console.print("back: of how many faults; lost, doubled: samples per fault, medians")
        for found in self.goodputs:
            console.print(
                f"{found.way}, a kill every {found.every_seconds:g} s: model says"
                f" {self.model(found):.1%}, measured {found.fraction:.1%} (worker back after"
                f" {found.away_seconds:.1f} s)"
            )
        for goal, reached in self.met().items():
            console.print(f"{'met' if reached else 'NOT MET'}: {goal}", highlight=False)
        for note in self.notes:
            console.print(note, markup=False, highlight=False)

    def _row(self, way: str) -> list[str]:
        if way in self.missing:
            return ["not installed", *["-"] * 6]
        mine = [each for each in self.faults if each.way == way]
        came_back = [each for each in mine if each.seconds is not None]
        found = self.goodput(way)
        return [
            *(_times([each.seconds for each in self.of(way, kind)]) for kind in KINDS),
            f"{len(came_back)}/{len(mine)}",
            _median([each.lost for each in came_back]),
            _median([each.doubled for each in came_back]),
            f"{found.fraction:.1%}" if found else "-",
        ]


def quantile(seconds: Sequence[float | None], part: float) -> float | None:
    """The time within which so many of the faults were over; None where more were not at all."""
    known = sorted(each for each in seconds if each is not None)
    placement = max(0, -int(-part * len(seconds) // 1) - 1)
    return known[placement] if placement < len(known) else None


def _times(seconds: list[float | None]) -> str:
    if not seconds:
        return "-"
    found = [quantile(seconds, part) for part in (0.5, 0.95)]
    return " / ".join("never" if each is None else f"{each:.2f}" for each in found)


def _median(counts: Sequence[int | None]) -> str:
    known = [each for each in counts if each is not None]
    return f"{statistics.median(known):g}" if known else "-"
