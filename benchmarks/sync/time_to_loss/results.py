"""What a run gave, and what is read from it: time, bytes and samples to a loss."""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.sync.time_to_loss.candidates import Trial


@dataclass(frozen=True)
class Point:
    """Where a run stood at one of its steps."""

    step: int
    samples: int
    seconds: float
    """On the clock, which stands still while losses are taken."""
    sent_bytes: float
    """By the interfaces of all nodes."""
    loss: float
    """On text that is held out, of what the ranks have in common."""


@dataclass(frozen=True)
class Result:
    """A run of one candidate with one seed."""

    candidate: str
    seed: int
    trial: Trial
    target: float
    points: tuple[Point, ...]
    late_steps: float = 0.0
    """With padded steps: the part that took longer than they were to be padded to."""
    sync: str = ""
    """How Paceline's workers agreed at the end."""
    failed: str = ""
    protocol: str = ""
    ratio: float = 0.0

    def at_target(self, what: Callable[[Point], float]) -> float:
        """Time, say, when the loss was reached, linear between two points; infinite if never."""
        for before, after in pairwise(self.points):
            if after.loss <= self.target:
                part = (before.loss - self.target) / max(before.loss - after.loss, 1e-12)
                return what(before) + part * (what(after) - what(before))
        return math.inf

    @property
    def seconds(self) -> float:
        """Until the loss was reached."""
        return self.at_target(lambda point: point.seconds)

    @property
    def sent_bytes(self) -> float:
        """Until the loss was reached."""
        return self.at_target(lambda point: point.sent_bytes)

    def loss_at(self, samples: float) -> float:
        """The loss when so many samples had been seen; not a number if they never were."""
        for before, after in pairwise(self.points):
            if before.samples <= samples <= after.samples:
                part = (samples - before.samples) / max(1, after.samples - before.samples)
                return before.loss + part * (after.loss - before.loss)
        return math.nan


@dataclass(frozen=True)
class Setting:
    """What was set up for a number of results."""

    protocol: str
    ratio: float
    """Of DDP's communication to its computation; 0 for a link as fast as the machine is."""
    ranks: int
    model: str
    link: str
    compute_seconds: float
    """Of a rank's part of a step: measured, or what it is padded to."""


@dataclass
class Results:
    """All that was measured, as it is kept in a file."""

    settings: list[Setting] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def of(self, setting: Setting) -> list[Result]:
        """The runs under a setting."""
        key = (setting.protocol, setting.ratio)
        return [each for each in self.results if (each.protocol, each.ratio) == key]

    def write(self, path: Path) -> None:
        """Keep them."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "Results":
        """Those of several files together."""
        found = cls()
        for path in paths:
            said = json.loads(path.read_text())
            found.settings += [Setting(**each) for each in said["settings"]]
            found.results += [result_of(each) for each in said["results"]]
        return found


def result_of(said: dict[str, object]) -> Result:
    """A result from its JSON."""
    points: list[dict[str, float]] = said.pop("points")  # type: ignore[assignment]
    trial: dict[str, object] = said.pop("trial")  # type: ignore[assignment]
    return Result(
        points=tuple(Point(**each) for each in points),  # type: ignore[arg-type]
        trial=Trial(**trial),  # type: ignore[arg-type]
        **said,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Row:
    """A candidate under one setting, over its seeds."""

    name: str
    trial: Trial
    seconds: tuple[float, ...]
    sent_bytes: tuple[float, ...]
    losses: tuple[float, ...]
    """When all who reached the target had seen as many samples."""
    against: dict[str, float]
    """Median over the seeds of its time to the time of another candidate."""

    @property
    def is_ours(self) -> bool:
        """Whether Paceline's trainer did it."""
        return self.trial.kind == "paceline"

    @property
    def median_seconds(self) -> float:
        """Infinite where most seeds did not reach the loss."""
        return statistics.median(self.seconds)

    @property
    def median_bytes(self) -> float:
        """Infinite where most seeds did not reach the loss."""
        return statistics.median(self.sent_bytes)


def rows_of(results: Sequence[Result]) -> list[Row]:
    """A row for each candidate, in the order in which they were run."""
    by_name: dict[str, dict[int, Result]] = {}
    for result in results:
        by_name.setdefault(result.candidate, {})[result.seed] = result
    reached = [each.points[-1].samples for each in results if math.isfinite(each.seconds)]
    samples = min(reached, default=0)
    return [
        Row(
            name,
            next(iter(runs.values())).trial,
            tuple(each.seconds for each in runs.values()),
            tuple(each.sent_bytes for each in runs.values()),
            tuple(each.loss_at(samples) for each in runs.values()),
            {other: _ratio(runs, theirs) for other, theirs in by_name.items()},
        )
        for name, runs in by_name.items()
    ]


def _ratio(runs: dict[int, Result], others: dict[int, Result]) -> float:
    """Seed by seed, since those were run beside each other."""
    ratios = [
        runs[seed].seconds / others[seed].seconds
        for seed in runs.keys() & others.keys()
        if math.isfinite(others[seed].seconds)  # else nothing is known of the quotient
    ]
    return statistics.median(ratios) if ratios else math.nan
