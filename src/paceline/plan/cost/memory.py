"""Memory of many layouts on their fullest device, by use."""

from dataclasses import dataclass, fields, replace

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.expert_weights import expert_weights
from paceline.plan.cost.layout_table import RECOMPUTE, Layouts
from paceline.plan.cost.synchronization import state_bytes
from paceline.specs.measurements.profile import LayerCost, Profile

IN_PLACE = 0.6
"""Fraction of a logit's ten bytes that remains if the loss overwrites it."""
KEPT_EVERY_SECOND = 0.62
"""Fraction of the inputs and results of a Llama block's products without the even products."""
GATHERED_BLOCKS = 2.0
"""Blocks whose whole weights a sharded worker holds: the current one and the next."""


@dataclass(frozen=True)
class Bytes:
    """Bytes on a device by use, for every layout."""

    weights: Array
    gradients: Array
    optimizer: Array
    gathered: Array
    """Whole weights of the current blocks, gathered from the other shards."""
    activations: Array
    """Activations saved for backward, of all micro-batches in flight."""
    working: Array
    """Working memory of the current block: recomputed or temporary tensors."""
    logits: Array
    """Outputs of the last stage and their gradients."""
    sync_state: Array
    """State of the synchronization mode: last synchronized weights, error feedback."""
    reserved: Array
    """What the allocator holds beyond what is in use."""
    base: Array

    @property
    def total(self) -> Array:
        """Sum of all fields."""
        return np.asarray(sum(getattr(self, each.name) for each in fields(self)))


def memory(profile: Profile, layouts: Layouts, batch: Array | float, engine: Engine) -> Bytes:
    """Return the memory of the fuller of the first and the last stage: the others hold less than
    the first."""
    first = stage(profile, layouts, batch, engine, last=False)
    last = stage(profile, layouts, batch, engine, last=True)
    fuller = last.total > first.total
    return Bytes(
        *(
            np.where(fuller, getattr(last, each.name), getattr(first, each.name))
            for each in fields(Bytes)
        )
    )


def stage(
    profile: Profile, layouts: Layouts, batch: Array | float, engine: Engine, last: bool
) -> Bytes:
    """Return the memory of the first or the last stage; without a pipeline, they are the same."""
    before, block, after = profile.layers
    piped = layouts.pipeline > 1
    tied = after.parameters == 0
    blocks = layouts.blocks(block.count)
    if last:  # has one block less if the stages do not divide the blocks (step_time.py)
        blocks = blocks - (blocks * layouts.pipeline > block.count)
    # A tied output matrix has a second copy on the last stage of a pipeline.
    output = before.parameters if tied else after.parameters
    whole = before.parameters + after.parameters
    ends = np.where(piped, output if last else before.parameters, whole)
    held = (blocks * block.parameters + ends) / layouts.tensor
    held = held + blocks * block.parameters_whole + before.parameters_whole
    held = held + (after.parameters_whole if last else np.where(piped, 0, after.parameters_whole))
    divided = np.where(layouts.optimizer_shards > 0, layouts.stage_workers, layouts.shards)
    at_work = GATHERED_BLOCKS * (block.parameters / layouts.tensor + block.parameters_whole)
    at_work = np.where(engine.gather_once & piped, held, at_work)
    kept, repeated = _kept(block, layouts, engine)
    micro_batches = layouts.micro_batches(batch)
    # Gradients that are reduced only after the last micro-batch are whole on every shard.
    whole_gradients = (micro_batches > 1) & (not engine.reduce_always)
    gradient_shards = np.where(whole_gradients, 1.0, layouts.shards)
    if engine.divides_gradients:
        gradient_shards = layouts.stage_workers
    under_way = _under_way(layouts, micro_batches, last)
    samples = layouts.samples
    sliced = np.where(layouts.sequence > 0, layouts.tensor, 1.0)
    ends_kept = np.where(piped & last, 0.0, before.saved_bytes_whole / sliced)
    of_logits = IN_PLACE if engine.loss_in_place else 1.0
    logits = of_logits * after.saved_bytes / layouts.tensor + after.saved_bytes_whole / sliced
    zero = np.zeros_like(held)
    of_block = block.parameters / layouts.tensor + block.parameters_whole
    handed = block.output_bytes
    # Gathered weights are in the precision of products already.
    casts = np.where(layouts.shards > 1, 0, engine.kept_cast_bytes)
    gradient = engine.gradient_bytes + engine.second_gradient_bytes
    of_micro_batches = samples * (blocks * kept + ends_kept) + casts * blocks * of_block
    activations = under_way * of_micro_batches
    working = samples * repeated
    logits = samples * logits if last else np.where(piped, 0.0, samples * logits)
    found = Bytes(
        weights=held * engine.weight_bytes / layouts.shards,
        gradients=held * gradient / gradient_shards,
        optimizer=held * engine.state_bytes / divided,
        gathered=np.where(layouts.shards > 1, at_work * engine.gathered_bytes, 0.0),
        activations=activations
        + np.where(piped & engine.buffers_for_all, samples * micro_batches * handed, 0.0),
        working=working,
        logits=logits,
        sync_state=zero
        if engine.sync.by_engine
        else held * state_bytes(engine.sync, layouts.replicas) / layouts.shards,
        reserved=engine.reserved * (activations + working + logits),
        base=zero + engine.base_bytes,
    )
    experts = expert_weights(block, layouts, blocks)
    if experts is None:
        return found
    experts_divided = np.where(layouts.optimizer_shards > 0, experts.replicas, experts.shards)
    current = np.where(engine.gather_once & piped, 1.0, GATHERED_BLOCKS / blocks)
    return replace(
        found,
        weights=found.weights + engine.weight_bytes * experts.more(layouts.shards, experts.shards),
        gradients=found.gradients
        + gradient * experts.more(gradient_shards, np.where(whole_gradients, 1.0, experts.shards)),
        optimizer=found.optimizer + engine.state_bytes * experts.more(divided, experts_divided),
        gathered=found.gathered
        + np.where(
            layouts.shards > 1, engine.gathered_bytes * current * experts.more(1.0, 1.0), 0.0
        ),
    )


def _kept(block: LayerCost, layouts: Layouts, engine: Engine) -> tuple[Array, Array]:
    """Return the bytes of one block and sample that are kept until backward, and those
    recomputed."""
    sliced = np.where(layouts.sequence > 0, layouts.tensor, 1.0)
    core = block.saved_bytes_attention / layouts.tensor
    rest = block.saved_bytes / layouts.tensor + block.saved_bytes_whole / sliced
    products = block.product_bytes / layouts.tensor + block.product_bytes_whole / sliced
    if engine.keeps_every_second:
        products = KEPT_EVERY_SECOND * products
    by_mode = {
        "none": rest + core,
        "selective": products + core,
        "attention": rest,
        "block": block.output_bytes / sliced,
    }
    chosen = layouts.recompute.astype(np.intp)
    kept = np.choose(chosen, [by_mode[mode] for mode in RECOMPUTE])
    return kept, np.maximum(rest + core - kept, 0.0)


def _under_way(layouts: Layouts, micro_batches: Array, last: bool) -> Array:
    """Return the micro-batches in flight on a stage (Megatron's schedules).

    With interleaving, a worker begins with (v-1)p + 1 chunks, plus two for every stage behind it.
    """
    stages, chunks = layouts.pipeline, layouts.chunks
    behind = 0.0 * stages if last else stages - 1.0
    interleaved = ((chunks - 1.0) * stages + 1.0 + 2.0 * behind) / chunks
    most = np.where(chunks > 1, interleaved, 1.0 + behind)
    return np.minimum(most, micro_batches)
