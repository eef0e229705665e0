"""Step time of many layouts at once.

A step is the time of a micro-batch on the slowest stage times the number of micro-batches; the
pipeline's fill and drain; exposed communication of gradients and weights; the optimizer; and host
overhead. `docs/planning.md` has the formulas with their sources.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from paceline.cluster.collectives import COLLECTIVES, Array
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.compute import UNHIDDEN, Compute
from paceline.plan.cost.device_groups import group_of
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.expert_weights import expert_traffic, expert_weights
from paceline.plan.cost.host_optimizer import host_seconds
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.synchronization import (
    UNHIDDEN_DATA,
    GradientCollectives,
    Rounds,
    exposed,
    rounds,
)
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile

ADAM_BYTES = 8.0


@dataclass(frozen=True)
class Times:
    """Step breakdown in seconds, for every layout."""

    compute: Array
    """Compute of the slowest stage, without recomputation."""
    recompute: Array
    tensor: Array
    """Tensor-parallel all-reduces."""
    transfer: Array
    """Transfers between stages."""
    bubble: Array
    """Fill and drain of the pipeline."""
    data: Array
    """Exposed communication of gradients and weights between replicas and shards."""
    optimizer: Array
    host: Array
    """Host overhead of a step, during which nothing else runs."""
    jitter: Array
    """Waiting for the slowest worker."""

    @property
    def total(self) -> Array:
        """Time of the whole step."""
        return np.asarray(sum(getattr(self, each.name) for each in fields(self)))


class StepModel:
    """A model on a cluster with given coefficients; `times` scores layouts."""

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        engine: Engine,
        numbers: Coefficients,
    ) -> None:
        self.profile = profile
        self.cluster = cluster
        self.engine = engine
        self.numbers = numbers
        self.compute = Compute(cluster, precision, engine, numbers)

    def times(self, layouts: Layouts, batch: Array | float) -> Times:
        """Return the step breakdown for `batch` samples."""
        numbers, profile = self.numbers, self.profile
        alike, place = layouts.alike_on_a_device()
        before, block, after = (self.compute.passes(each, alike) for each in profile.layers)
        begin, middle, end = (each.all[..., place] for each in (before, block, after))
        fill = (profile.block.count * block.all + before.all + after.all)[..., place]
        few, run = layouts.alike_in_degrees
        piped = layouts.pipeline > 1
        micro_batches = layouts.micro_batches(batch)

        blocks, at_begin, at_end = self.slowest(layouts, begin, middle, end)
        slowest = blocks * middle + at_begin * begin + at_end * end
        accumulation = self.accumulation_seconds(layouts, micro_batches)
        slowest = slowest + accumulation
        waiting = np.maximum(fill + layouts.pipeline * accumulation - slowest, 0.0)
        send = self.send_seconds(layouts)
        # A stage communicates with the next and the previous one, once per chunk.
        exchanges = 2.0 * layouts.chunks
        if self.engine.crossing_transfers:  # and each of two stages has only one neighbor
            exchanges = layouts.chunks * np.minimum(layouts.pipeline - 1.0, 2.0)
        host = 2.0 * layouts.chunks * numbers.handover_seconds
        transfer = np.where(piped, exchanges * send + host, 0.0)
        if self.engine.overlap_transfer:
            hidden = np.maximum(transfer - numbers.overlap * slowest, UNHIDDEN * transfer)
            transfer = np.where(layouts.chunks > 1, hidden, transfer)
        bubble = waiting / layouts.chunks + 2.0 * (layouts.pipeline - 1.0) * send

        again = blocks * block.again[..., place]
        begin, middle, end = (each.tensor[..., place] for each in (before, block, after))
        tensor = blocks * middle + at_begin * begin + at_end * end
        compute = slowest - again - tensor
        forward = blocks * block.forward[..., place]
        data = self._data(layouts, micro_batches, forward, compute + again - forward)
        optimizer = self._optimizer(few)[..., run]
        one = np.ones_like(compute)
        step_host = (numbers.step_seconds + self._sharded_host(few))[..., run]
        busy = micro_batches * (slowest + transfer) + bubble + data
        if self.engine.sync.replicas_differ:  # the other modes communicate in backward: `_data`
            of = self._rounds(few)
            of = replace(of, seconds=of.seconds[..., run])
            waiting = exposed(of, busy + optimizer + step_host)
            data, busy = data + waiting, busy + waiting
        spread = numbers.jitter * np.sqrt(2.0 * np.log(np.maximum(few.devices, 1.0)))
        return Times(
            compute=micro_batches * compute,
            recompute=micro_batches * again,
            tensor=micro_batches * tensor,
            transfer=micro_batches * transfer,
            bubble=bubble,
            data=data,
            optimizer=optimizer * one,
            host=step_host,
            jitter=busy * spread[..., run],
        )

    def accumulation_seconds(self, layouts: Layouts, micro_batches: Array) -> Array:
        """Return the seconds to add a micro-batch's gradients to those before it, in the mean: the
        first one's are only written."""
        few, run = layouts.alike_in_degrees
        held = self.held_parameters(few)
        if self.engine.reduce_always:
            held = held / few.shards
        seconds = self.engine.accumulated_bytes * held / self.compute.memory_rate
        return np.asarray(seconds[..., run] * (1.0 - 1.0 / micro_batches))

    def _sharded_host(self, layouts: Layouts) -> Array:
        """Return the host cost of shards."""
        tensors = self.profile.tensors / layouts.pipeline
        each = self.engine.sharded_launches * self.numbers.launch_seconds
        return np.where(layouts.shards > 1, tensors * each, 0.0)

    def slowest(
        self, layouts: Layouts, before: Array, block: Array, after: Array
    ) -> tuple[Array, Array, Array]:
        """Return the blocks of the slowest stage, and whether it is the first, the last, or
        both."""
        count = self.profile.block.count
        few, run = layouts.alike_in_degrees
        of_middle = few.blocks(count)
        # If the stages do not divide the blocks, the last stage has one less, then the first.
        missing = of_middle * few.pipeline - count
        blocks = of_middle[run]
        last = (of_middle - (missing >= 1))[run]
        first = (of_middle - (missing >= 2))[run]
        middle = blocks * block
        ending = last * block + after
        beginning = first * block + before
        end = ending >= np.maximum(middle, beginning)
        begin = (beginning >= middle) & ~end
        number = np.where(end, last, np.where(begin, first, blocks))
        whole = (few.pipeline == 1)[run]
        return (
            np.where(whole, float(count), number),
            (begin | whole).astype(np.float64),
            (end | whole).astype(np.float64),
        )

    def send_seconds(self, layouts: Layouts) -> Array:
        """Return the transfer time of one micro-batch to the next stage: every slice sends its
        part."""
        nbytes = self.profile.block.output_bytes * layouts.samples / layouts.tensor
        stride = layouts.tensor * layouts.stage_workers
        return COLLECTIVES["send"](
            nbytes, group_of(self.cluster, self.numbers, layouts.pipeline, stride)
        )

    def held_parameters(self, layouts: Layouts) -> Array:
        """Return the parameters that a tensor-parallel slice of the largest stage holds."""
        before, block, after = self.profile.layers
        blocks = layouts.blocks(block.count)
        piped = layouts.pipeline > 1
        ends, ends_whole = (
            np.where(piped, max(each), sum(each))
            for each in (
                (before.parameters, after.parameters),
                (before.parameters_whole, after.parameters_whole),
            )
        )
        divided = (blocks * block.parameters + ends) / layouts.tensor
        held = divided + blocks * block.parameters_whole + ends_whole
        experts = expert_weights(block, layouts, blocks)
        return held if experts is None else held + experts.more(1.0, 1.0)

    def _data(
        self, layouts: Layouts, micro_batches: Array, forward: Array, backward: Array
    ) -> Array:
        """Return the exposed communication of gradients and gathered weights."""
        engine = self.engine
        overlap = np.minimum(self.numbers.overlap, 1.0) if engine.overlap_data else np.zeros(())
        shards = layouts.shards
        calls = self._collectives(layouts, micro_batches)
        gather, scatter = calls.gather, calls.scatter
        again = gather * layouts.reshard
        inner = again + scatter if engine.reduce_always else again
        hidden = overlap if engine.overlap_shards else np.zeros(())
        gathering = np.maximum(gather - hidden * forward, 0.0)
        usual = gathering + np.maximum(inner - hidden * backward, 0.0)
        last = gathering + np.maximum(again + scatter - hidden * backward, 0.0)
        sharded = (micro_batches - 1.0) * usual + last
        if engine.gather_once:
            once = gather + np.maximum(scatter - hidden * backward, 0.0)
            sharded = np.where(layouts.pipeline > 1, once, sharded)
        if engine.overlap_shards:  # no compute precedes the first gather that could overlap it
            first = gather * layouts.pipeline / self.profile.block.count
            sharded = sharded + np.where(shards > 1, first, 0.0)
        if engine.sync.replicas_differ:
            return np.asarray(sharded)
        if engine.divides_gradients:
            calls = replace(calls, reduce=micro_batches * calls.reduce)
        if calls.of_experts is not None:
            calls = replace(calls, reduce=calls.reduce + calls.of_experts)
        # With interleaving, communication of one chunk's gradients overlaps the compute of the
        # other chunks in the last micro-batches: one pipeline round for each of them.
        rounds = layouts.pipeline * (1.0 - 1.0 / layouts.chunks)
        window = overlap * np.minimum(1.0 + rounds, micro_batches)
        if not engine.overlap_piped:
            window = np.where(layouts.pipeline > 1, 0.0, window)
        # Communication of shards takes its share of the backward that overlaps with that of
        # replicas.
        free = np.maximum(window * backward - np.where(shards > 1, again + scatter, 0.0), 0.0)
        if not engine.overlap_shards:
            free = np.where(shards > 1, 0.0, free)
        behind = calls.exposed_reduce(free, overlap, engine.bucket_bytes)
        if calls.back is None:
            return np.asarray(sharded + behind)
        back = np.maximum(calls.back - window * forward, UNHIDDEN_DATA * overlap * calls.back)
        return np.asarray(sharded + (behind + back))

    def _collectives(self, layouts: Layouts, micro_batches: Array) -> GradientCollectives:
        """Return the collectives of every layout."""
        few, run = layouts.alike_in_degrees
        engine = self.engine
        usual = self._with_gradients_of(engine.gradient_bytes, few).take(run)
        narrow = (layouts.shards > 1) & (micro_batches <= 1.0)
        if engine.sharded_gradient_bytes == engine.gradient_bytes or not narrow.any():
            return usual
        of_shards = self._with_gradients_of(engine.sharded_gradient_bytes, few).take(run)
        return usual.where(narrow, of_shards)

    def _with_gradients_of(self, gradient_bytes: float, layouts: Layouts) -> GradientCollectives:
        """Return the collectives if each gradient has that many bytes."""
        engine, rate = self.engine, self.numbers.bucket_rate
        nbytes = np.full(len(layouts), float(gradient_bytes))
        where = self.profile.block, layouts, self.cluster, self.numbers
        apart = expert_traffic(*where, engine, nbytes)
        held = self.held_parameters(layouts)
        held = held if apart is None else held - apart.parameters
        shards, stride = layouts.shards, layouts.tensor
        group = group_of(self.cluster, self.numbers, shards, stride)
        # Weights and gradients move block by block.
        calls = layouts.blocks(self.profile.block.count)
        gather = COLLECTIVES["all-gather"](engine.gathered_bytes * held / calls, group)
        reduced = gradient_bytes * held
        scatter = COLLECTIVES["reduce-scatter"](reduced / calls, group)
        gather, scatter = calls * gather / rate, calls * scatter / rate
        if apart is not None:
            gather, scatter = gather + apart.gather, scatter + apart.scatter
        part = reduced / shards
        if engine.sync.replicas_differ:
            return GradientCollectives(gather, scatter, np.zeros_like(gather), part)
        group = group_of(self.cluster, self.numbers, layouts.replicas, stride * shards)
        if engine.sync.by_engine:
            calls = np.where(shards > 1, calls, 1.0)
            summed = calls * COLLECTIVES["all-reduce"](part / calls, group) / rate
        else:
            summed = self._rounds(layouts).seconds
        back = None
        divided = layouts.optimizer_shards > 0
        if divided.any():
            weights = engine.gathered_bytes * held / shards
            scattered = COLLECTIVES["reduce-scatter"](part, group) / rate
            summed = np.where(divided, scattered, summed)
            back = np.where(divided, COLLECTIVES["all-gather"](weights, group) / rate, 0.0)
        if apart is None:
            return GradientCollectives(gather, scatter, summed, part, back)
        back = apart.back if back is None else back + apart.back
        return GradientCollectives(gather, scatter, summed, part, back, apart.summed)

    def _rounds(self, layouts: Layouts) -> Rounds:
        """Return the rounds of a synchronization mode other than PyTorch's all-reduce."""
        stride = layouts.tensor * layouts.shards
        group = group_of(self.cluster, self.numbers, layouts.replicas, stride)
        parameters = self.held_parameters(layouts) / layouts.shards
        found = rounds(
            self.engine,
            layouts.replicas,
            parameters,
            group,
            self.compute.memory_rate,
            self.numbers.launch_seconds,
        )
        return replace(found, seconds=found.seconds / self.numbers.bucket_rate)

    def _optimizer(self, layouts: Layouts) -> Array:
        divided = np.where(layouts.optimizer_shards > 0, layouts.stage_workers, layouts.shards)
        if (measured := self.profile.optimizer_seconds) is not None:
            return np.asarray(
                self.held_parameters(layouts) / divided / self.profile.parameters * measured
            )
        # 16 bytes for the weight and its gradient, and the state three times; the prior is Adam's.
        state = (16.0 + 3.0 * self.profile.state_bytes) / (16.0 + 3.0 * ADAM_BYTES)
        parameters = self.held_parameters(layouts) / divided
        block = self.profile.block
        experts = expert_weights(block, layouts, layouts.blocks(block.count))
        if experts is not None:
            over = np.where(layouts.optimizer_shards > 0, experts.replicas, experts.shards)
            parameters = parameters + experts.held / over - experts.held / divided
        if self.engine.host_optimizer:
            return host_seconds(parameters, self.cluster.devices_per_node)
        nbytes = parameters * self.numbers.optimizer_bytes * state
        return np.asarray(nbytes / self.compute.memory_rate)
