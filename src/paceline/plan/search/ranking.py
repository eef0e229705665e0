"""All layouts of a model on a cluster: those that fit, the fastest first."""

from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.calibration.calibrate import Fit, Steps
from paceline.plan.cost.engine_kind import EngineKind, LayoutChoices
from paceline.plan.cost.layout_table import RECOMPUTE, Index, Layouts
from paceline.plan.cost.memory import memory
from paceline.plan.cost.synchronization import extra_samples
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.plan.search.degrees import (
    context_degrees,
    divisors,
    divisors_up_to,
    expert_degrees,
    tensor_degrees,
)
from paceline.plan.search.infeasible import BatchIndivisible, ModeRefused
from paceline.plan.search.layout_estimate import estimates
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile, TrainingPrecision
from paceline.specs.plans.estimate import Estimate
from paceline.specs.plans.sync import SyncSettings, default_sync

MOST_SAMPLES = 256
"""Most samples in a micro-batch."""


@dataclass(frozen=True)
class Found:
    """The layouts that fit, fastest learning first, and those that do not."""

    steps: Steps
    seconds: Array
    too_large: Layouts
    too_large_held: Array
    """Bytes on the fullest device."""

    @property
    def scored(self) -> int:
        """Number of layouts scored."""
        return len(self.seconds) + len(self.too_large)

    def best(self, found: Fit, count: int, precision: TrainingPrecision) -> list[Estimate]:
        """Return the estimates of the first `count` layouts."""
        return self.chosen(found, np.arange(min(count, len(self.seconds))), precision)

    def chosen(self, found: Fit, places: Index, precision: TrainingPrecision) -> list[Estimate]:
        """Return the estimates of the layouts at these places."""
        return estimates(found, self.steps.take(places), precision)


def search(
    profile: Profile,
    cluster: Cluster,
    batch: int,
    found: Fit,
    precision: TrainingPrecision = "bf16",
    sync: SyncSettings | None = None,
    kind: EngineKind = PACELINE,
) -> Found:
    """Score every layout of `batch` samples on all devices of the cluster.

    With a synchronization mode other than PyTorch's all-reduce, only layouts with replicas.
    """
    steps, held = _sized(profile, cluster, batch, precision, sync or default_sync(), kind)
    layouts = steps.layouts
    fits = held * steps.engine.memory_high <= cluster.device.memory_bytes
    fitting = steps.take(np.flatnonzero(fits))
    order, seconds = np.zeros(0, dtype=np.intp), np.zeros(0)
    if fits.any():
        seconds = found.model(steps).times(fitting.layouts, float(batch)).total
        known = found.measured(fitting)
        seconds = np.where(np.isnan(known), seconds, known)
        learning = seconds * extra_samples(steps.engine.sync, fitting.layouts.replicas)
        order = np.argsort(learning, kind="stable")
    return Found(
        steps=fitting.take(order),
        seconds=seconds[order],
        too_large=layouts.take(np.flatnonzero(~fits)),
        too_large_held=held[~fits],
    )


def needed_bytes(
    profile: Profile,
    cluster: Cluster,
    batch: int,
    precision: TrainingPrecision,
    sync: SyncSettings | None = None,
    kind: EngineKind = PACELINE,
) -> float:
    """Return the memory that the smallest layout needs on a device, at the upper end of its
    interval."""
    steps, held = _sized(profile, cluster, batch, precision, sync or default_sync(), kind)
    return float(held.min()) * steps.engine.memory_high


def _sized(
    profile: Profile,
    cluster: Cluster,
    batch: int,
    precision: TrainingPrecision,
    sync: SyncSettings,
    kind: EngineKind,
) -> tuple[Steps, Array]:
    """Return all layouts that the mode accepts, and the bytes on their fullest device."""
    engine = kind.engine(profile, cluster, precision, sync)
    layouts = every(profile, cluster, batch, kind.choices)
    if not sync.by_engine and cluster.devices > 1:
        layouts = _with_forward_samples(layouts, sync, batch)
        layouts = _replicated(layouts, sync, precision)
    steps = Steps(profile, cluster, precision, engine, layouts, np.full(len(layouts), float(batch)))
    return steps, memory(profile, layouts, float(batch), engine).total


def every(
    profile: Profile, cluster: Cluster, batch: int, choices: LayoutChoices = PACELINE.choices
) -> Layouts:
    """Return all layouts that an engine can run: degrees x micro-batch x recomputation x
    interleaving."""
    rows: list[Array] = []
    contexts = context_degrees(profile) if choices.context else [1]
    more = contexts != [1] or (choices.experts and profile.block.parameters_experts > 0)
    for tensor in tensor_degrees(profile) if choices.tensor else [1]:
        left, rest = divmod(cluster.devices, tensor)
        if rest:
            continue
        for pipeline in divisors(left) if choices.pipeline else [1]:
            if pipeline > profile.block.count:
                continue
            if choices.equal_stages and profile.block.count % pipeline:
                continue
            for context in contexts:
                data, rest = divmod(left // pipeline, context)
                if rest or batch % data:
                    continue
                some = _degrees(profile, choices, tensor, pipeline, data, batch // data, context)
                rows.append(some if not more else _divided_more(profile, choices, some, context))
    if not sum(map(len, rows)):
        raise BatchIndivisible(batch, cluster.devices)
    return Layouts(*np.concatenate(rows).T)


def _divided_more(profile: Profile, choices: LayoutChoices, rows: Array, context: int) -> Array:
    """Return the layouts with the degree of context parallelism and each of expert parallelism.

    Shards of one replica divide its experts; without shards, all workers of a stage do.
    """
    known = Layouts(*rows.T)
    workers = known.tensor * (known.replicas if choices.shards == "none" else known.shards)
    degrees = expert_degrees(profile) if choices.experts else [1]
    found = [
        np.column_stack((rows, np.full_like(workers, context), np.full_like(workers, degree)))[
            workers % degree == 0
        ]
        for degree in degrees
    ]
    return np.concatenate(found)


def _with_forward_samples(layouts: Layouts, sync: SyncSettings, batch: int) -> Layouts:
    """Return the layouts of replicas alone with the forward size that the mode prescribes; all
    layouts if it prescribes none, or if there is no such layout."""
    numbers, place = np.unique(layouts.replicas, return_inverse=True)
    samples = [sync.forward_samples(batch, int(each)) for each in numbers]
    if None in samples:
        return layouts
    size = np.array(samples, dtype=np.float64)[place]
    whole = layouts.replicas == layouts.devices
    fits = whole & (layouts.micro_batch >= size)
    if not fits.any():
        return layouts
    return layouts.take(
        np.flatnonzero(fits & (layouts.micro_batch == layouts.micro_batch[fits].min()))
    )


def _replicated(layouts: Layouts, sync: SyncSettings, precision: TrainingPrecision) -> Layouts:
    """Return the layouts that the mode accepts; if none, raise its refusal of the most replicas."""
    refused: dict[float, PacelineError] = {}
    for replicas in np.unique(layouts.replicas):
        one = int(np.flatnonzero(layouts.replicas == replicas)[0])
        try:
            sync.check(layouts.layout(one, precision))
        except PacelineError as error:
            refused[float(replicas)] = error
    kept = np.flatnonzero(~np.isin(layouts.replicas, list(refused)))
    if not len(kept):
        raise ModeRefused(refused[max(refused)])
    return layouts.take(kept)


def _degrees(
    profile: Profile,
    choices: LayoutChoices,
    tensor: int,
    pipeline: int,
    data: int,
    share: int,
    context: int,
) -> Array:
    """Return all layouts with these degrees, as rows in the order of the fields of `Layouts`."""
    sharding = {"any": divisors(data), "all": [data], "none": []}[choices.shards]
    shards = np.array([context * each for each in sharding] or [1], dtype=np.float64)
    samples = np.array(divisors_up_to(MOST_SAMPLES, share))
    modes = np.array([RECOMPUTE.index(each) for each in choices.recompute])
    chunks = np.array(_chunks(profile.block.count, choices, pipeline), dtype=np.float64)
    sequence = np.zeros(1)
    if tensor > 1 and choices.sequence == "always":
        sequence = np.ones(1)
    elif tensor > 1 and choices.sequence == "choice" and pipeline == 1:
        sequence = np.array([0.0, 1.0])
    # Neighbors have the same degrees and chunks: `Layouts.alike_in_degrees`.
    grid = np.meshgrid(shards, chunks, samples, modes, sequence, indexing="ij")
    shard, chunk, sample, mode, along = (each.ravel() for each in grid)
    whole = np.ones_like(shard)
    columns = (
        data * context / shard,
        shard,
        whole * tensor,
        whole * pipeline,
        sample,
        mode,
        chunk,
        along,
        whole,  # shards free gathered weights after forward
        float(choices.optimizer_shards) * whole,
    )
    rows = np.stack(columns, axis=1)
    # A pipeline processes whole rounds of micro-batches.
    return np.asarray(rows[(share / sample) % pipeline == 0])


def _chunks(blocks: int, choices: LayoutChoices, pipeline: int) -> list[int]:
    """Return the numbers of stages on each worker for which there are enough blocks."""
    if pipeline == 1:
        return [1]
    return [
        each
        for each in choices.chunks
        if each * pipeline <= blocks and not (choices.equal_stages and blocks % (each * pipeline))
    ]
