"""A step of a pipeline, event by event: what waits for what, with workers of unequal speed.

What is simulated is plain numbers for every stage, wherever they come from. Every stage takes as
long as the slowest of the workers that hold it: replicas and slices wait for each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.cost.pipeline_schedules import Order, Schedule, order, waves

DRAWS = 16
LOW, HIGH = 5.0, 95.0
"""Percentiles of the draws, which hold nine of ten."""
ROOM = 2**22
"""Times that are kept at once; more pipelines are simulated one after the other."""


@dataclass(frozen=True)
class Pipeline:
    """What the parts of a step take, for every worker and each of its chunks."""

    schedule: Schedule
    micro_batches: int
    forward_seconds: Array
    """A row for every worker, a column for each of its stages: of one micro-batch."""
    backward_seconds: Array
    send_seconds: float = 0.0
    """Until what a stage has sent is there; the sender goes on meanwhile."""
    gradient_seconds: float = 0.0
    """Of a worker's network, to sum the gradients of one stage over replicas."""
    buckets: int = 1
    """In which the gradients of a stage are summed, as its last backward yields them."""
    overlap: bool = True
    """Whether that begins before the worker's last backward has ended."""
    after_seconds: float = 0.0
    """What follows when all gradients are there: the optimizer, the host."""
    members: float = 1.0
    """Workers that hold the same stage."""


@dataclass(frozen=True)
class Simulated:
    """Seconds of a step."""

    seconds: float
    """The mean of all draws."""
    low: float
    high: float
    even_seconds: float
    """With workers of equal speed."""


def simulate(
    pipelines: Sequence[Pipeline], spread: float, draws: int = DRAWS, seed: int = 0
) -> list[Simulated]:
    """Of each; `spread` is the standard deviation of the logarithm of a worker's speed.

    All pipelines meet the same luck, so that their order does not depend on it.
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
    """By which the slowest of `members` is slower than usual: a row a worker, a column a draw.

    The largest of n draws has the distribution function of one, to the power of n.
    """
    luck = np.random.default_rng(seed).random((draws, workers)).T
    normal = NormalDist().inv_cdf
    worst = [normal(each) for each in (luck ** (1.0 / members)).ravel().tolist()]
    return np.exp(spread * np.array(worst)).reshape(workers, draws)


def _steps(pipelines: Sequence[Pipeline], spread: float, draws: int, seed: int) -> Iterator[Array]:
    """Seconds of each; the first is for workers of equal speed."""
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
    """Seconds of a part: by worker, by chunk of forward and then of backward, by draw."""
    parts = np.concatenate([pipeline.forward_seconds, pipeline.backward_seconds], axis=1)
    workers = len(parts)
    factors = slowness(pipeline.members, workers, spread, draws, seed)
    factors = np.concatenate([np.ones((workers, 1)), factors], axis=1)
    return np.asarray(parts[:, :, np.newaxis] * factors[:, np.newaxis, :])


def _ends(
    pipelines: Sequence[Pipeline], orders: Sequence[Order], lasting: Sequence[Array]
) -> Array:
    """When every part of every pipeline is done, in the order of their numbers."""
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
    """When every worker has all gradients: one bucket after the other on its network."""
    chunks = _chunks(pipeline)
    computed = ends[:, -1]
    gradient, buckets = pipeline.gradient_seconds, pipeline.buckets
    if not pipeline.overlap:
        return np.asarray(computed + chunks * gradient)
    network = np.zeros_like(computed)
    for part in reversed(range(chunks, 2 * chunks)):
        last = (ordered.part == part) & (ordered.micro_batch == pipeline.micro_batches - 1)
        end = ends[last]
        # Buckets are filled evenly: the network is kept waiting by the first, or by the last.
        filled = end - lasting[:, part] * (1.0 - 1.0 / buckets)
        network = np.maximum(np.maximum(network, filled) + gradient, end + gradient / buckets)
    return np.maximum(network, computed)


def _summary(seconds: Array) -> Simulated:
    drawn = seconds[1:] if len(seconds) > 1 else seconds
    low, high = np.percentile(drawn, [LOW, HIGH])
    return Simulated(float(drawn.mean()), float(low), float(high), float(seconds[0]))
