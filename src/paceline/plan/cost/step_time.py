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
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.synchronization import Rounds, exposed, rounds
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile

UNHIDDEN_DATA = 0.1
"""Fraction of overlapped gradient communication that stays exposed: the last bucket."""
FIRST_BUCKET_BYTES = float(1 << 20)
"""Size of DDP's first bucket: small, so that communication begins early."""
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
        before, block, after = (
            self.compute.passes(each, alike).take(place) for each in profile.layers
        )
        piped = layouts.pipeline > 1
        micro_batches = layouts.micro_batches(batch)

        blocks, at_begin, at_end = self.slowest(layouts, before.all, block.all, after.all)
        slowest = blocks * block.all + at_begin * before.all + at_end * after.all
        accumulation = self.accumulation_seconds(layouts, micro_batches)
        slowest = slowest + accumulation
        fill = profile.block.count * block.all + before.all + after.all
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

        again = blocks * block.again
        tensor = blocks * block.tensor + at_begin * before.tensor + at_end * after.tensor
        compute = slowest - again - tensor
        forward = blocks * block.forward
        data = self._data(layouts, micro_batches, forward, compute + again - forward)
        optimizer = self._optimizer(layouts)
        one = np.ones_like(compute)
        step_host = numbers.step_seconds * one + self._sharded_host(layouts)
        busy = micro_batches * (slowest + transfer) + bubble + data
        if self.engine.sync.replicas_differ:  # the other modes communicate in backward: `_data`
            waiting = exposed(self._rounds(layouts), busy + optimizer + step_host)
            data, busy = data + waiting, busy + waiting
        devices = np.maximum(layouts.devices, 1.0)
        return Times(
            compute=micro_batches * compute,
            recompute=micro_batches * again,
            tensor=micro_batches * tensor,
            transfer=micro_batches * transfer,
            bubble=bubble,
            data=data,
            optimizer=optimizer * one,
            host=step_host,
            jitter=busy * numbers.jitter * np.sqrt(2.0 * np.log(devices)),
        )

    def accumulation_seconds(self, layouts: Layouts, micro_batches: Array) -> Array:
        """Return the seconds to add a micro-batch's gradients to those before it, in the mean: the
        first one's are only written."""
        held = self.held_parameters(layouts)
        if self.engine.reduce_always:
            held = held / layouts.shards
        nbytes = self.engine.accumulated_bytes * held * (1.0 - 1.0 / micro_batches)
        return np.asarray(nbytes / self.compute.memory_rate)

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
        blocks = layouts.blocks(count)
        piped = layouts.pipeline > 1
        # If the stages do not divide the blocks, the last stage has one less, then the first.
        missing = blocks * layouts.pipeline - count
        last = blocks - (missing >= 1)
        first = blocks - (missing >= 2)
        ending = last * block + after
        beginning = first * block + before
        end = ending >= np.maximum(blocks * block, beginning)
        begin = (beginning >= blocks * block) & ~end
        number = np.where(end, last, np.where(begin, first, blocks))
        return (
            np.where(piped, number, float(count)).astype(np.float64),
            (begin | ~piped).astype(np.float64),
            (end | ~piped).astype(np.float64),
        )

    def send_seconds(self, layouts: Layouts) -> Array:
        """Return the transfer time of one micro-batch to the next stage: every slice sends its
        part."""
        nbytes = self.profile.block.output_bytes * layouts.micro_batch / layouts.tensor
        stride = layouts.tensor * layouts.data_workers
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
        return divided + blocks * block.parameters_whole + ends_whole

    def _data(
        self, layouts: Layouts, micro_batches: Array, forward: Array, backward: Array
    ) -> Array:
        """Return the exposed communication of gradients and gathered weights."""
        engine = self.engine
        held = self.held_parameters(layouts)
        overlap = np.minimum(self.numbers.overlap, 1.0) if engine.overlap_data else np.zeros(())
        shards, replicas, stride = layouts.shards, layouts.replicas, layouts.tensor
        rate = self.numbers.bucket_rate
        group = group_of(self.cluster, self.numbers, shards, stride)
        # Weights and gradients move block by block.
        calls = layouts.blocks(self.profile.block.count)
        gather = COLLECTIVES["all-gather"](engine.gathered_bytes * held / calls, group)
        reduced = self._reduced_bytes(layouts, micro_batches) * held
        scatter = COLLECTIVES["reduce-scatter"](reduced / calls, group)
        gather, scatter = calls * gather / rate, calls * scatter / rate
        again = gather * layouts.reshard
        inner = again + scatter if engine.reduce_always else again
        hidden = overlap if engine.overlap_shards else np.zeros(())
        usual = np.maximum(gather - hidden * forward, 0.0)
        usual = usual + np.maximum(inner - hidden * backward, 0.0)
        last = np.maximum(gather - hidden * forward, 0.0)
        last = last + np.maximum(again + scatter - hidden * backward, 0.0)
        sharded = (micro_batches - 1.0) * usual + last
        if engine.gather_once:
            once = gather + np.maximum(scatter - hidden * backward, 0.0)
            sharded = np.where(layouts.pipeline > 1, once, sharded)
        first = np.zeros(())
        if engine.overlap_shards:  # no compute precedes the first gather that could overlap it
            first = gather * layouts.pipeline / self.profile.block.count

        sharded = sharded + np.where(shards > 1, first, 0.0)
        if engine.sync.replicas_differ:
            return sharded
        part = reduced / shards
        group = group_of(self.cluster, self.numbers, replicas, stride * shards)
        if engine.sync.by_engine:
            calls = np.where(shards > 1, calls, 1.0)
            summed = calls * COLLECTIVES["all-reduce"](part / calls, group) / rate
        else:
            summed = self._rounds(layouts).seconds
        back = np.zeros(())
        divided = layouts.optimizer_shards > 0
        if divided.any():
            weights = engine.gathered_bytes * held / shards
            scattered = COLLECTIVES["reduce-scatter"](part, group) / rate
            summed = np.where(divided, scattered, summed)
            back = np.where(divided, COLLECTIVES["all-gather"](weights, group) / rate, 0.0)
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
        replicated = self._behind(summed, free, part, overlap) + np.maximum(
            back - window * forward, UNHIDDEN_DATA * overlap * back
        )
        return sharded + replicated

    def _reduced_bytes(self, layouts: Layouts, micro_batches: Array) -> Array:
        """Return the bytes of a gradient as it is reduced."""
        narrow = (layouts.shards > 1) & (micro_batches <= 1.0)
        return np.where(narrow, self.engine.sharded_gradient_bytes, self.engine.gradient_bytes)

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

    def _behind(self, summed: Array, free: Array, nbytes: Array, overlap: Array) -> Array:
        """Return the exposed part of a gradient all-reduce after the backward that overlaps it.

        With buckets, it begins when the first one is full, and the last one follows the backward.
        """
        bucket = self.engine.bucket_bytes
        if bucket is None:
            return np.maximum(summed - free, UNHIDDEN_DATA * overlap * summed)
        first = np.minimum(FIRST_BUCKET_BYTES, nbytes)
        rest = nbytes - first
        last = np.where(rest > 0, rest - bucket * (np.ceil(rest / bucket) - 1.0), first)
        waiting = 1.0 - first / np.maximum(nbytes, 1.0)
        return np.maximum(summed - free * waiting, summed * last / np.maximum(nbytes, 1.0))

    def _optimizer(self, layouts: Layouts) -> Array:
        divided = np.where(layouts.optimizer_shards > 0, layouts.data_workers, layouts.shards)
        if (measured := self.profile.optimizer_seconds) is not None:
            return np.asarray(
                self.held_parameters(layouts) / divided / self.profile.parameters * measured
            )
        # 16 bytes for the weight and its gradient, and the state three times; the prior is Adam's.
        state = (16.0 + 3.0 * self.profile.state_bytes) / (16.0 + 3.0 * ADAM_BYTES)
        nbytes = self.held_parameters(layouts) / divided * self.numbers.optimizer_bytes * state
        return np.asarray(nbytes / self.compute.memory_rate)
