"""Time of one layer for one micro-batch on one device: matmuls, memory traffic, launches, sums."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from paceline.cluster.collectives import COLLECTIVES, UNPROBED, Array
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.device_groups import group_of
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.kernels.matrix_products import BACKWARD, MatrixProducts
from paceline.plan.cost.layout_table import RECOMPUTE, Index, Layouts
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import LayerCost, Timing

BACKWARD_LAUNCHES = 1.5
"""Kernel launches of backward, relative to forward: autograd's launches are cheaper."""
UNHIDDEN = 0.25
"""Fraction of an overlapped tensor-parallel all-reduce that stays exposed: its first and last
part."""
COMPILED = 0.5
"""Fraction of bytes and launches between matrix products that remains after compilation."""
EVERY_SECOND = 0.36
"""Fraction of a Llama block's FLOPs in the even products: keys, output, second of the MLP."""


@dataclass(frozen=True)
class Passes:
    """Seconds of one layer for one micro-batch."""

    forward: Array
    backward: Array
    again: Array
    tensor: Array
    """Exposed communication inside the layer: of tensor, context and expert parallelism."""

    all: Array
    """Sum of the above."""

    def take(self, place: Index) -> "Passes":
        """Return the entries of those layouts."""
        return Passes(*(getattr(self, each.name)[..., place] for each in fields(self)))


@dataclass(frozen=True)
class _Work:
    """Seconds of one layer for one micro-batch, by use."""

    core: Array
    """Device time of the core of attention."""
    between: Array
    """Device time between matrix products."""
    busy: Array
    """Total device time of forward."""
    busy_backward: Array
    launches: Array
    """Host time of the launches."""
    forward: Array
    backward: Array


class Compute:
    """The compute model of a device, with its host and its tensor-parallel peers."""

    def __init__(
        self, cluster: Cluster, precision: str, engine: Engine, numbers: Coefficients
    ) -> None:
        self._cluster = cluster
        self._engine = engine
        self._numbers = numbers
        self._products = MatrixProducts(cluster, precision, engine, numbers)
        self.memory_rate = self._products.memory_rate
        """Memory rate of the operations between matrix products, in bytes per second."""

    def passes(self, layer: LayerCost, layouts: Layouts) -> Passes:
        """Return the seconds of one layer for one micro-batch."""
        work = self._work(layer, layouts)
        if layer.timing is not None:
            work = self._as_timed(layer, layer.timing, layouts, work)
        again = self._again(layer, layouts, work)
        if not layer.reductions:
            none = np.zeros_like(work.forward)
            return Passes(
                work.forward, work.backward, again, none, work.forward + work.backward + again
            )
        overlap = self._engine.overlap_tensor
        sums = self._sums(layer, layouts)
        hidden = np.maximum(sums - self._numbers.overlap * work.busy, UNHIDDEN * sums)
        forward_sums = sums if overlap == "no" else hidden
        backward_sums = hidden if overlap == "both" else sums
        # All-reduces run on the device: they are free while it would wait for the host.
        if layer.timing is None:
            forward_sums = _later(work.busy + forward_sums, work.launches) - work.forward
            backward_sums = (
                _later(work.busy_backward + backward_sums, BACKWARD_LAUNCHES * work.launches)
                - work.backward
            )
        tensor = forward_sums * (1.0 + self._sums_again(layer, layouts)) + backward_sums
        if layouts.context.ndim and layer.context_bytes:
            tensor = tensor + self._keys_and_values(layer, layouts, work)
        if layouts.expert.ndim and layer.routed_bytes:
            tensor = tensor + self._to_experts(layer, layouts)
        together = work.forward + work.backward + again + tensor
        return Passes(work.forward, work.backward, again, tensor, together)

    def _work(self, layer: LayerCost, layouts: Layouts) -> "_Work":
        """Return the device and host time, without tensor-parallel all-reduces."""
        products = [each for each in layer.matmuls if not each.attention]
        fused = not layer.moved_bytes_attention
        core = self._moved(layer.moved_bytes_attention / layouts.tensor, layouts)
        if self._products.measures_core(fused):  # those times include what is moved
            core = np.zeros_like(core)
        core_backward = BACKWARD * core
        for each in layer.matmuls:
            if each.attention:
                forward, backward = self._products.seconds(each, layouts, fused)
                core, core_backward = core + forward, core_backward + backward
        whole = np.where(layouts.sequence > 0, layouts.tensor, 1.0)
        between = self._moved(
            layer.moved_bytes / layouts.tensor + layer.moved_bytes_whole / whole, layouts
        )
        ahead, behind = self._uncounted(layer, layouts)
        busy = core + between + ahead
        busy_backward = core_backward + BACKWARD * between + behind
        for each in products:
            forward, backward = self._products.seconds(each, layouts, fused=False)
            busy, busy_backward = busy + forward, busy_backward + backward
        compiled = COMPILED if self._engine.compiled else 1.0
        launches = compiled * layer.kernels * self._numbers.launch_seconds
        return _Work(
            core=core,
            between=between + ahead,
            busy=busy,
            busy_backward=busy_backward,
            launches=launches,
            forward=_later(busy, launches),
            backward=_later(busy_backward, BACKWARD_LAUNCHES * launches),
        )

    def from_kernels(self, layer: LayerCost, layouts: Layouts) -> tuple[Array, Array]:
        """Return the seconds of the device in forward and backward, and those of them that come
        from measured kernels."""
        work, fused = self._work(layer, layouts), not layer.moved_bytes_attention
        measured = np.zeros_like(layouts.tensor)
        for each in layer.matmuls:
            measured = measured + self._products.from_kernels(
                each, layouts, fused and each.attention
            )
        return work.busy + work.busy_backward, measured

    def _uncounted(self, layer: LayerCost, layouts: Layouts) -> tuple[Array | float, Array | float]:
        """Return the seconds of operators without a FLOP count, in forward and backward."""
        if (timing := layer.uncounted) is None:
            return 0.0, 0.0
        return (
            _interpolated(layouts.micro_batch, timing.samples, timing.forward_seconds),
            _interpolated(layouts.micro_batch, timing.samples, timing.backward_seconds),
        )

    def _as_timed(
        self, layer: LayerCost, timing: Timing, layouts: Layouts, work: "_Work"
    ) -> "_Work":
        """Scale the work to the layer's measured time; the effect of tensor parallelism stays
        computed."""
        one = np.ones_like(layouts.tensor)
        unsliced = self._work(layer, replace(layouts, tensor=one, sequence=0.0 * one))
        samples, rate = layouts.micro_batch, self._numbers.matmul_rate
        forward = _interpolated(samples, timing.samples, timing.forward_seconds)
        backward = _interpolated(samples, timing.samples, timing.backward_seconds)
        by = forward / unsliced.forward / rate
        return _Work(
            core=work.core * by,
            between=work.between * by,
            busy=work.busy * by,
            busy_backward=work.busy_backward * by,
            launches=work.launches * by,
            forward=work.forward * by,
            backward=work.backward * backward / unsliced.backward / rate,
        )

    def _again(self, layer: LayerCost, layouts: Layouts, work: "_Work") -> Array:
        repeated = self._repeated(layer, layouts)
        selected, whole = work.between, work.forward
        if self._engine.keeps_every_second:
            selected = selected + EVERY_SECOND * (work.busy - work.core - work.between)
        if self._engine.stops_early and layer.repeated:
            whole = whole - self._products.seconds(layer.matmuls[-1], layouts, fused=False)[0]
        some = np.where(repeated == RECOMPUTE.index("attention"), work.core, selected)
        some = np.where(repeated > 0, some, 0.0)
        return np.where(repeated == RECOMPUTE.index("block"), whole, some)

    def _sums_again(self, layer: LayerCost, layouts: Layouts) -> Array:
        """Return the fraction of forward's tensor-parallel all-reduces that backward repeats."""
        repeated = self._repeated(layer, layouts)
        # The all-reduce in the middle of a block or, with sequence parallelism, the all-gathers
        # before matrix products.
        selective = 0.5 * (repeated == RECOMPUTE.index("selective"))
        block = repeated == RECOMPUTE.index("block")
        if not self._engine.stops_early:
            return np.asarray(selective + block)
        last = np.where(layouts.sequence > 0, 0.25, 0.5)
        return np.asarray(selective + block * (1.0 - last))

    def _repeated(self, layer: LayerCost, layouts: Layouts) -> Array:
        return layouts.recompute if layer.repeated else 0.0 * layouts.recompute

    def _sums(self, layer: LayerCost, layouts: Layouts) -> Array:
        """Return the seconds of a layer's tensor-parallel all-reduces in forward."""
        group = group_of(self._cluster, self._numbers, layouts.tensor, 1.0)
        nbytes = layer.output_bytes * layouts.samples
        reductions: Array | float = layer.reductions
        if layouts.expert.ndim and layer.routed_bytes:  # whole experts have no sums
            reductions = np.where(layouts.expert > 1, layer.reductions - 1.0, layer.reductions)
        return reductions * COLLECTIVES["all-reduce"](nbytes, group)

    def _keys_and_values(self, layer: LayerCost, layouts: Layouts, work: "_Work") -> Array:
        """Return the exposed seconds of keys and values along a ring of context-parallel workers,
        and the time to add the partial results; backward also passes on their gradients."""
        group = group_of(self._cluster, self._numbers, layouts.context, layouts.tensor)
        hops = layouts.context - 1.0
        nbytes = layer.context_bytes * layouts.samples / layouts.tensor
        hidden = self._numbers.overlap * work.core if self._engine.overlap_context else 0.0
        forward = hops * COLLECTIVES["send"](nbytes, group)
        forward = np.maximum(forward - hidden * hops / layouts.context, 0.0)
        backward = hops * COLLECTIVES["send"](2.0 * nbytes, group)
        backward = np.maximum(backward - BACKWARD * hidden * hops / layouts.context, 0.0)
        partial = 3.0 * layer.output_bytes / layouts.tensor  # two are read and one written
        added = hops * self._moved(partial, layouts)
        forward, backward = forward + added, backward + BACKWARD * added
        core = self._repeated(layer, layouts) >= RECOMPUTE.index("attention")
        return np.asarray(forward * (1.0 + core) + backward)

    def _to_experts(self, layer: LayerCost, layouts: Layouts) -> Array:
        """Return the seconds of the all-to-alls that bring tokens to experts and back, in forward
        and backward."""
        group = group_of(self._cluster, self._numbers, layouts.expert, 1.0)
        whole = np.where(layouts.sequence > 0, layouts.tensor, 1.0)
        nbytes = self._engine.imbalance * layer.routed_bytes * layouts.samples / whole
        again = self._repeated(layer, layouts) == RECOMPUTE.index("block")
        return np.asarray((4.0 + 2.0 * again) * UNPROBED["all-to-all"](nbytes, group))

    def _moved(self, nbytes: Array | float, layouts: Layouts) -> Array:
        fused = COMPILED if self._engine.compiled else 1.0
        return np.asarray(fused * nbytes * layouts.samples / self.memory_rate)


def _later(device: Array, host: Array) -> Array:
    """Return a smooth maximum: parts of a block wait for the device, others for the host."""
    both = np.square(np.square(device)) + np.square(np.square(host))
    return np.asarray(np.sqrt(np.sqrt(both)))


def _interpolated(samples: Array, measured: Sequence[int], seconds: Sequence[float]) -> Array:
    """Return the seconds of micro-batches of `samples`, interpolated between measured sizes.

    Beyond the largest size, each further sample takes as long as the last ones measured; below the
    smallest, the time is constant.
    """
    last = measured[-1]
    if len(measured) == 1:
        return np.asarray(seconds[0] * np.maximum(samples / last, 1.0))
    each = max(0.0, (seconds[-1] - seconds[-2]) / (last - measured[-2]))
    inside = np.interp(samples, measured, seconds)
    return np.asarray(inside + each * np.maximum(samples - last, 0.0))
