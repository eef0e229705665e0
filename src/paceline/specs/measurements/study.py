"""A study: one training on several numbers of workers, and its result."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.interval import Interval
from paceline.specs.measurements.larger_batches import LargerBatches
from paceline.specs.measurements.quality import Quality
from paceline.specs.runs.events import Part
from paceline.specs.runs.saved_step import SavedStep

Kind = Literal["strong", "weak", "quality", "batch"]
"""`strong`: the same batch on more workers. `weak`: the batch grows with the workers. `quality`:
not speed, but how well the training learns from the same number of samples. `batch`: up to which
batch it learns as well."""


def compares_quality(kind: Kind) -> bool:
    """Return whether studies of this kind compare how well the training learns, not its speed."""
    return kind in ("quality", "batch")


Limit = Literal["compute", "data", "network", "slow worker", "uneven steps", "checkpoints", "other"]
"""The largest cost of a step besides compute; `compute` if no other part takes a tenth of it.
`uneven steps`: workers wait for each other, for a different one each time."""


FARTHEST = 100
"""Laws are not extrapolated beyond this multiple of the most workers measured."""


class Point(Spec):
    """One setting to measure."""

    nodes: PositiveInt = 1
    devices_per_node: PositiveInt = 1
    varied: dict[str, str] = Field(default_factory=dict)
    """Other options of `paceline run` with their values, such as `sync`."""
    batch_times: PositiveInt = 1
    """Global batch as a multiple of the training's."""

    @property
    def workers(self) -> int:
        """Workers on all nodes."""
        return self.nodes * self.devices_per_node

    @property
    def family(self) -> str:
        """Settings common to the points of one curve, such as `sync=local:every=8`; empty if
        none vary."""
        return " ".join(f"{key}={value}" for key, value in self.varied.items())

    @property
    def where(self) -> str:
        """Return `4 nodes`, `2 nodes x 4` or `4 workers`."""
        if self.nodes == 1:
            return f"{self.workers} worker" + "s" * (self.workers > 1)
        return f"{self.nodes} nodes" + f" x {self.devices_per_node}" * (self.devices_per_node > 1)


class Study(Spec):
    """A study's settings; `study.toml` in its folder."""

    name: str
    train: Path
    function: str = "training"
    arguments: tuple[str, ...] = ()
    """Arguments of the user's file."""
    kind: Kind = "strong"
    points: tuple[Point, ...]
    repeat: PositiveInt = 3
    """Measurements of each point, interleaved: every point once before any is repeated. A
    quality study uses another seed each time."""
    steps: NonNegativeInt = 60
    """Steps of each run. For quality: steps of the training's own batch; 0: as many as it has."""
    starts_from: SavedStep | None = None
    """The checkpoint that every run starts from; None: the beginning. Steps are those after it."""
    warm_up: PositiveInt = 10
    """First steps of each run, left out of the measurement."""
    margin: PositiveFloat = 0.01
    """For quality: largest relative difference that counts as equal."""
    cluster: str
    """Where the study runs, in words: `here`, the scheduler, `the testbed NAME`."""


class Measured(Spec):
    """One run of a point."""

    run: str
    """The run's folder, relative to the study's."""
    samples_per_second: PositiveFloat
    """Throughput after the warm-up."""
    step_seconds: PositiveFloat
    batch: PositiveInt
    seconds: dict[Part, float]
    """Step breakdown in seconds, mean over the workers."""
    network_seconds: float
    """Seconds of a step that even the last worker waits for communication."""
    limit: Limit
    final_loss: float | None


_NARROW = 1.5
"""Ratio of an interval's ends up to which it says something."""
MOST_REPEATS = 100


class PointResult(Spec):
    """The result of a point."""

    point: Point
    runs: tuple[Measured, ...]
    """Finished runs."""
    failures: tuple[str, ...] = ()
    """Causes of failure of the other runs."""
    samples_per_second: Interval | None = None
    """Mean over the runs; None, as in the fields below, if no run has finished."""
    speedup: Interval | None = None
    """Throughput relative to one worker; one worker counts as the throughput of the smallest
    measured point divided by its workers."""
    efficiency: Interval | None = None
    """Speed-up divided by the number of workers."""
    predicted_samples_per_second: PositiveFloat | None = None
    """Predicted; None without a prediction."""

    @property
    def repeats_needed(self) -> int | None:
        """Runs that would narrow the efficiency's interval enough; None if it is narrow enough."""
        found = self.efficiency
        if found is None or found.low is None or found.high is None:
            return None
        spread = math.log(found.high / found.low) / math.log(_NARROW)
        return None if spread <= 1 else min(MOST_REPEATS, math.ceil(len(self.runs) * spread**2))


def families(points: Sequence[PointResult]) -> dict[str, list[PointResult]]:
    """Return the points with finished runs by curve, the fewest workers first.

    Points that vary in nothing else form one curve, unless both nodes and workers per node grow.
    Then there are up to three, all from the smallest point: `horizontal` (more nodes), `vertical`
    (more workers per node) and `hybrid` (more of both).
    """
    finished = sorted((each for each in points if each.runs), key=lambda each: each.point.workers)
    found: dict[str, list[PointResult]] = {}
    for family in dict.fromkeys(each.point.family for each in finished):
        members = [each for each in finished if each.point.family == family]
        nodes = min(each.point.nodes for each in members)
        devices = min(each.point.devices_per_node for each in members)
        by_growth: dict[tuple[bool, bool], list[PointResult]] = {}
        for each in members:
            growth = (each.point.nodes > nodes, each.point.devices_per_node > devices)
            by_growth.setdefault(growth, []).append(each)
        first = by_growth.pop((False, False), [])
        if len(by_growth) <= 1:
            found[family] = members
            continue
        for growth, direction in _DIRECTIONS.items():
            if growth in by_growth:
                found[", ".join(filter(None, (direction, family)))] = first + by_growth[growth]
    return found


_DIRECTIONS = {(True, False): "horizontal", (False, True): "vertical", (True, True): "hybrid"}

LawName = Literal["amdahl", "gustafson", "usl"]


class Law(Spec):
    """A scaling law, fitted to the points of a family."""

    name: LawName
    family: str
    """Name of the family, as from `families`."""
    numbers: dict[str, Interval]
    """`serial`: fraction of the work that does not shrink with more workers (Amdahl), or does
    not grow with them (Gustafson). `contention` and `coherence`: alpha and beta of the Universal
    Scalability Law."""
    off: float
    """Root mean square of the relative speed-up error, over all points but the first, whose
    speed-up is a definition."""
    curve: tuple[tuple[float, float], ...]
    """Workers and speed-up, from the fewest to four times the most that were measured."""


class Reach(Spec):
    """How far a family scales, by its Universal Scalability Law."""

    family: str
    bound: PositiveFloat
    """Efficiency to keep."""
    workers: PositiveInt | None
    """The most workers that keep the bound; None beyond a hundred times the most measured."""
    peak_workers: PositiveInt | None
    """Workers above which throughput falls; None if it does not, or only beyond a hundred times
    the most measured."""
    batch_for: tuple[tuple[int, float], ...]
    """Isoefficiency: workers, and the factor by which the study's batch for them must grow to
    keep the bound, if overhead does not grow with the batch; 1 if it is kept already."""


class StudyResult(Spec):
    """The result of a study; `paceline study --json` prints this."""

    study: Study
    points: tuple[PointResult, ...]
    laws: tuple[Law, ...] = ()
    reaches: tuple[Reach, ...] = ()
    quality: Quality | None = None
    """Comparisons of a quality or batch study."""
    larger_batches: LargerBatches | None = None
    """Result of a batch study."""
    findings: tuple[str, ...] = ()
    """Sentences on how well the training scales, its limits and remedies."""
