"""A simulation of a pipeline's step, event by event, with workers of unequal speed.

Input is plain numbers for every stage, from any source. A stage takes as long as the slowest worker
that holds it: replicas and tensor-parallel slices wait for each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.cost.pipeline_schedules import Order, Schedule, order, waves

DRAWS = 16
LOW, HIGH = 5.0, 95.0
"""Percentiles of the draws: a 90 % interval."""
ROOM = 2**22
"""Times to keep in memory at once; more pipelines are simulated in turns."""


@dataclass(frozen=True)
class Pipeline:
    """Durations of a step's parts, for every worker and each of its chunks."""

    schedule: Schedule
    micro_batches: int
    forward_seconds: Array
    """Seconds of one micro-batch: a row per worker, a column per stage."""
    backward_seconds: Array
    send_seconds: float = 0.0
    """Time until a stage's output arrives; the sender continues meanwhile."""
    gradient_seconds: float = 0.0
    """Network time of a worker to all-reduce the gradients of one stage over replicas."""
    buckets: int = 1
    """Number of gradient buckets of a stage, which its last backward fills in turn."""
    overlap: bool = True
    """Whether the all-reduce begins before the worker's last backward has ended."""
    after_seconds: float = 0.0
    """Time after all gradients have arrived: the optimizer, the host."""
    members: float = 1.0
    """Workers that hold the same stage."""


@dataclass(frozen=True)
class Simulated:
    """Seconds of a step."""

    seconds: float
    """Mean over all draws."""
    low: float
    high: float
    even_seconds: float
    """Step time with workers of equal speed."""


def simulate(
    pipelines: Sequence[Pipeline], spread: float, draws: int = DRAWS, seed: int = 0
) -> list[Simulated]:
    """Simulate each pipeline; `spread`: standard deviation of the log of a worker's speed.

    All pipelines use the same random draws, so that their ranking does not depend on them.
    """
    found: list[Simulated] = []
    waiting = list(pipelines)
    while waiting:
        together, times = 0, 0
        while together < len(waiting) and (not together or times <= ROOM):
            times += _parts(waiting[together]) * (draws + 1)
            together += 1
        found += map(_summary, _steps(waiting[:together], spread, draws, seed))
        waiting = waiting[together:]
    return found


def _parts(pipeline: Pipeline) -> int:
    return 2 * pipeline.micro_batches * pipeline.forward_seconds.size


def slowness(members: float, workers: int, spread: float, draws: int, seed: int) -> Array:
    """Return the slowdown of the slowest of `members`: a row per worker, a column per draw.

    The largest of n draws has the distribution function of one draw to the power of n.
    """
    luck = np.random.default_rng(seed).random((draws, workers)).T
    normal = NormalDist().inv_cdf
    worst = [normal(each) for each in (luck ** (1.0 / members)).ravel().tolist()]
    return np.exp(spread * np.array(worst)).reshape(workers, draws)


def _steps(pipelines: Sequence[Pipeline], spread: float, draws: int, seed: int) -> Iterator[Array]:
    """Yield the step times of each pipeline; the first entry is for workers of equal speed."""
    orders = [
        order(each.schedule, len(each.forward_seconds), each.micro_batches, _chunks(each))
        for each in pipelines
    ]
    lasting = [_lasting(each, spread, draws, seed) for each in pipelines]
    ends = _ends(pipelines, orders, lasting)
    begin = 0
    for each, ordered, seconds in zip(pipelines, orders, lasting, strict=True):
        workers, places = ordered.part.shape
        own = ends[begin : begin + workers * places].reshape(workers, places, -1)
        begin += workers * places
        yield _finished(each, ordered, own, seconds).max(axis=0) + each.after_seconds


def _chunks(pipeline: Pipeline) -> int:
    return int(pipeline.forward_seconds.shape[1])


def _lasting(pipeline: Pipeline, spread: float, draws: int, seed: int) -> Array:
    """Return the seconds of each pass: by worker, by chunk (forward, then backward), by draw."""
    parts = np.concatenate([pipeline.forward_seconds, pipeline.backward_seconds], axis=1)
    workers = len(parts)
    factors = slowness(pipeline.members, workers, spread, draws, seed)
    factors = np.concatenate([np.ones((workers, 1)), factors], axis=1)
    return np.asarray(parts[:, :, np.newaxis] * factors[:, np.newaxis, :])


def _ends(
    pipelines: Sequence[Pipeline], orders: Sequence[Order], lasting: Sequence[Array]
) -> Array:
    """Return the end time of every pass of every pipeline, in the order of their numbers."""
    kinds, needs, begins, sent = [], [], [], []
    first_kind, first = 0, 0
    for each, ordered, seconds in zip(pipelines, orders, lasting, strict=True):
        workers, places = ordered.part.shape
        own = np.arange(workers)[:, np.newaxis]
        kinds.append((first_kind + own * seconds.shape[1] + ordered.part).ravel())
        needs.append(np.where(ordered.needs < 0, -1, ordered.needs + first).ravel())
        begins.append(first + own * places)
        sent.append(np.full((workers, 1), each.send_seconds))
        first_kind += workers * seconds.shape[1]
        first += workers * places
    kind, need = np.concatenate(kinds), np.concatenate(needs)
    begin, send = np.concatenate(begins).ravel(), np.concatenate(sent)
    seconds = np.concatenate([each.reshape(-1, each.shape[2]) for each in lasting])

    ends = np.empty((len(need) + 1, seconds.shape[1]))
    ends[-1] = -np.inf
    free = np.zeros((len(begin), seconds.shape[1]))
    for going, numbers in waves(need, begin, np.append(begin[1:], len(need))):
        time = ends.take(need[numbers], axis=0, mode="wrap")
        time += send.take(going, axis=0)
        np.maximum(time, free.take(going, axis=0), out=time)
        time += seconds.take(kind[numbers], axis=0)
        free[going] = time
        ends[numbers] = time
    return ends


def _finished(pipeline: Pipeline, ordered: Order, ends: Array, lasting: Array) -> Array:
    """Return when each worker has all gradients: its network sends one bucket after the other."""
    chunks = _chunks(pipeline)
    computed = ends[:, -1]
    gradient, buckets = pipeline.gradient_seconds, pipeline.buckets
    if not pipeline.overlap:
        return np.asarray(computed + chunks * gradient)
    network = np.zeros_like(computed)
    for part in reversed(range(chunks, 2 * chunks)):
        last = (ordered.part == part) & (ordered.micro_batch == pipeline.micro_batches - 1)
        end = ends[last]
        # Buckets fill evenly, so the network waits for the first bucket or for the last.
        filled = end - lasting[:, part] * (1.0 - 1.0 / buckets)
        network = np.maximum(np.maximum(network, filled) + gradient, end + gradient / buckets)
    return np.maximum(network, computed)


def _summary(seconds: Array) -> Simulated:
    drawn = seconds[1:] if len(seconds) > 1 else seconds
    low, high = np.percentile(drawn, [LOW, HIGH])
    return Simulated(float(drawn.mean()), float(low), float(high), float(seconds[0]))
