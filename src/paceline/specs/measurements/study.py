"""A study: one training on several numbers of workers, and its result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.interval import Interval
from paceline.specs.measurements.quality import Quality
from paceline.specs.runs.events import Part

Kind = Literal["strong", "weak", "quality"]
"""`strong`: the same batch on more workers. `weak`: a batch that grows with them. `quality`: not
how fast, but how well it learns, from as many samples."""
Limit = Literal["compute", "data", "network", "slow worker", "uneven steps", "checkpoints", "other"]
"""What makes steps longest, beside computing; `compute` where nothing takes a tenth of them.
`uneven steps`: workers wait for each other, now for one and now for another."""


FARTHEST = 100
"""Laws are not extrapolated beyond this multiple of the most workers measured."""


class Point(Spec):
    """One setting to measure."""

    nodes: PositiveInt = 1
    devices_per_node: PositiveInt = 1
    varied: dict[str, str] = Field(default_factory=dict)
    """Options of `paceline run` beside these, such as `sync`, and what they are here."""
    batch_times: PositiveInt = 1
    """Global batch as a multiple of the training's."""

    @property
    def workers(self) -> int:
        """Workers on all nodes."""
        return self.nodes * self.devices_per_node

    @property
    def family(self) -> str:
        """What points on one curve have in common, `sync=local:every=8`, if anything varies."""
        return " ".join(f"{key}={value}" for key, value in self.varied.items())

    @property
    def where(self) -> str:
        """`4 nodes`, `2 nodes x 4`, `4 workers`."""
        if self.nodes == 1:
            return f"{self.workers} worker" + "s" * (self.workers > 1)
        return f"{self.nodes} nodes" + f" x {self.devices_per_node}" * (self.devices_per_node > 1)


class Study(Spec):
    """A study's settings; `study.toml` in its folder."""

    name: str
    train: Path
    function: str = "training"
    kind: Kind = "strong"
    points: tuple[Point, ...]
    repeat: PositiveInt = 3
    """How often each point is measured, all points in turn before any is measured again; for
    quality, each time with another seed."""
    steps: NonNegativeInt = 60
    """Of each run; for quality, of the training's own batch, and 0 for as many as it has."""
    warm_up: PositiveInt = 10
    """First steps of each run, left out of the measurement."""
    margin: PositiveFloat = 0.01
    """For quality: largest relative difference that counts as equal."""
    cluster: str
    """Where it is measured, in words: `here`, the scheduler, `the testbed NAME`."""


class Measured(Spec):
    """One run of a point."""

    run: str
    """Its folder, below the study's."""
    samples_per_second: PositiveFloat
    """After the warm-up."""
    step_seconds: PositiveFloat
    batch: PositiveInt
    seconds: dict[Part, float]
    """Step breakdown in seconds, mean over the workers."""
    network_seconds: float
    """Of a step, what even the last worker waits for the others."""
    limit: Limit
    final_loss: float | None


class PointResult(Spec):
    """The result of a point."""

    point: Point
    runs: tuple[Measured, ...]
    """The finished ones."""
    failures: tuple[str, ...] = ()
    """Causes of failure of the others."""
    samples_per_second: Interval | None = None
    """Mean over the runs; None where none has finished, as are those that follow."""
    speedup: Interval | None = None
    """Samples per second, by those of one worker: of the fewest workers that were measured, divided
    among them."""
    efficiency: Interval | None = None
    """Speed-up divided by the number of workers."""
    predicted_samples_per_second: PositiveFloat | None = None
    """Predicted; None without a prediction."""


def families(points: Sequence[PointResult]) -> dict[str, list[PointResult]]:
    """The points with finished runs by the curve that they lie on, the fewest workers first.

    Points that vary in nothing else are one curve, unless both their nodes and their workers per
    node grow. Then they are up to three, `horizontal` (more nodes), `vertical` (more workers per
    node) and `hybrid` (more of both), each of which begins with the fewest of both."""
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
    """A law of scaling, fitted to the points of a family."""

    name: LawName
    family: str
    """By the name that `families` gives it."""
    numbers: dict[str, Interval]
    """`serial`: the part of the work that does not get shorter with more workers (Amdahl), or does
    not grow with them (Gustafson). `contention` and `coherence`: alpha and beta of the Universal
    Scalability Law."""
    off: float
    """Root of the mean squared error of the speed-up, by the speed-up, over the points but the
    first, whose speed-up is given."""
    curve: tuple[tuple[float, float], ...]
    """Workers and speed-up, from the fewest to four times the most that were measured."""


class Reach(Spec):
    """How far a family scales, by its Universal Scalability Law."""

    family: str
    bound: PositiveFloat
    """Of the efficiency."""
    workers: PositiveInt | None
    """The most with which efficiency is not below the bound; None where that is beyond a hundred
    times what was measured."""
    peak_workers: PositiveInt | None
    """With more than these, throughput falls; None where it does not, or only beyond a hundred
    times what was measured."""
    batch_for: tuple[tuple[int, float], ...]
    """Isoefficiency: workers, and the batch, by the study's own for that number of workers, that
    would keep efficiency at the bound if overhead does not grow with the batch; 1 where the
    study's own does."""


class StudyResult(Spec):
    """The result of a study; `paceline study --json` prints this."""

    study: Study
    points: tuple[PointResult, ...]
    laws: tuple[Law, ...] = ()
    reaches: tuple[Reach, ...] = ()
    quality: Quality | None = None
    """Of a study of quality."""
    findings: tuple[str, ...] = ()
    """Sentences: how well it scaled, what limits it and what would help."""
