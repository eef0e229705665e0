"""All layouts of a model on a cluster: those that fit, the fastest first."""

from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.calibration.calibrate import Fit, Steps
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import RECOMPUTE, TWICE_AROUND, Index, Layouts
from paceline.plan.cost.memory import memory
from paceline.plan.cost.synchronization import extra_samples
from paceline.plan.search.layout_estimate import MEMORY_SPREAD, estimates
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile, TrainingPrecision
from paceline.specs.plans.estimate import Estimate
from paceline.specs.plans.sync import SyncSettings, default_sync

MOST_TENSOR = 16
"""Largest tensor-parallel degree: no published run exceeds two nodes of eight."""
MOST_SAMPLES = 256
"""Most samples in a micro-batch."""
MODES = ("none", "selective", "block")


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
) -> Found:
    """Score every layout of `batch` samples on all devices of the cluster.

    With a synchronization mode other than PyTorch's all-reduce, only layouts with replicas.
    """
    sync = sync or default_sync()
    engine = Engine.of_paceline(profile, cluster, precision, sync)
    layouts = every(profile, cluster, batch)
    if not sync.by_engine and cluster.devices > 1:
        layouts = _with_forward_samples(layouts, sync, batch)
        layouts = _replicated(layouts, sync, precision)
    steps = Steps(profile, cluster, precision, engine, layouts, np.full(len(layouts), float(batch)))
    held = memory(profile, layouts, float(batch), engine).total
    fits = held * (1 + MEMORY_SPREAD) <= cluster.device.memory_bytes
    fitting = steps.take(np.flatnonzero(fits))
    seconds = found.model(steps).times(fitting.layouts, float(batch)).total
    order = np.argsort(seconds * extra_samples(sync, fitting.layouts.replicas), kind="stable")
    return Found(
        steps=fitting.take(order),
        seconds=seconds[order],
        too_large=layouts.take(np.flatnonzero(~fits)),
        too_large_held=held[~fits],
    )


def every(profile: Profile, cluster: Cluster, batch: int) -> Layouts:
    """Return all layouts that Paceline can run: degrees x micro-batch x recomputation x
    interleaving."""
    rows: list[Array] = []
    for tensor in _tensor_degrees(profile, cluster):
        left = cluster.devices // tensor
        for pipeline in _divisors(left):
            data = left // pipeline
            if pipeline > profile.block.count or batch % data:
                continue
            twice = TWICE_AROUND * pipeline <= profile.block.count
            rows.append(_degrees(tensor, pipeline, data, batch // data, twice=twice))
    if not rows:
        raise PacelineError(
            f"a batch of {batch} cannot be divided over {cluster.devices} devices",
            fix="give a batch that a divisor of the devices divides",
        )
    return Layouts(*np.concatenate(rows).T)


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
        raise refused[max(refused)]
    return layouts.take(kept)


def _degrees(tensor: int, pipeline: int, data: int, share: int, *, twice: bool) -> Array:
    """Return all layouts with these degrees, as rows in the order of the fields of `Layouts`.

    `twice`: there are enough blocks for two stages on every worker.
    """
    shards = np.array(_divisors(data), dtype=np.float64)
    samples = np.array([each for each in _divisors(share) if each <= MOST_SAMPLES])
    modes = np.array([RECOMPUTE.index(each) for each in MODES])
    chunks = np.array([1.0, TWICE_AROUND] if pipeline > 1 and twice else [1.0])
    sequence = np.array([0.0, 1.0] if tensor > 1 and pipeline == 1 else [0.0])
    grid = np.meshgrid(shards, samples, modes, chunks, sequence, indexing="ij")
    shard, sample, mode, chunk, along = (each.ravel() for each in grid)
    whole = np.ones_like(shard)
    columns = (
        data / shard,
        shard,
        whole * tensor,
        whole * pipeline,
        sample,
        mode,
        chunk,
        along,
        whole,  # shards free gathered weights after forward
        0.0 * whole,
    )
    rows = np.stack(columns, axis=1)
    # A pipeline processes whole rounds of micro-batches.
    return np.asarray(rows[(share / sample) % pipeline == 0])


def _tensor_degrees(profile: Profile, cluster: Cluster) -> list[int]:
    """Return the degrees that divide the devices and the sliced dimensions."""
    products = [each for each in profile.block.matmuls if each.sliced != "whole"]
    if not products:
        return [1]
    sizes = [
        {"columns": each.columns, "inner": each.inner, "repeats": each.repeats}[each.sliced]
        for each in products
    ]
    return [
        each
        for each in _divisors(cluster.devices)
        if each <= MOST_TENSOR and not any(size % each for size in sizes)
    ]


def _divisors(number: int) -> list[int]:
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})
