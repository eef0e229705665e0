"""Properties of the training software that the cost model depends on."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.plans.sync import AnySync, default_sync

EXPERT_IMBALANCE = 1.1
"""Assumed. One expert's tokens exceed the mean by 4 % over a training with biases that balance
them and by about 70 % with an auxiliary loss (Wang et al. 2024, arXiv:2408.15664, MaxVio,
recalled); a worker holds several experts."""


class Engine(Spec):
    """Properties of a training engine; `plan/engines` has those of each. The defaults fit most
    trainers."""

    overlap_data: bool = True
    """Whether communication of gradients and gathered weights overlaps compute."""
    overlap_shards: bool = True
    """Whether that of shards does; not on CPUs, where nothing computes while FSDP communicates."""
    overlap_piped: bool = True
    """Whether that of a pipeline's replicas does."""
    bucket_bytes: NonNegativeInt | None = None
    """Bucket size of the replicas' gradients; None: a tenth of them."""
    overlap_tensor: Literal["no", "forward", "both"] = "no"
    """Whether tensor-parallel all-reduces overlap compute: in both directions (Megatron), or in
    forward only, which has nearly all the gain of torch's asynchronous ones."""
    overlap_transfer: bool = False
    """Whether transfers between stages overlap compute, with interleaved chunks."""
    overlap_context: bool = True
    """Whether context-parallel workers pass keys and values on while they compute (Megatron), or
    gather them before (torchtitan)."""
    imbalance: PositiveFloat = EXPERT_IMBALANCE
    """Tokens of the busiest of the workers that divide the experts, relative to the mean; 1 where
    a run balances or drops them by force."""
    sharded_launches: NonNegativeInt = 0
    """Host cost of shards per parameter tensor, in small operations; 0 on accelerators, where
    the host runs ahead."""
    crossing_transfers: bool = False
    """Whether a stage sends and receives in one exchange, so that both directions overlap."""
    gather_once: bool = False
    """Whether shards of a pipeline gather their stage's weights once per step and keep them."""
    reduce_always: bool = False
    """Whether shards reduce gradients after every micro-batch, not only after the last of a
    step."""
    compiled: bool = False
    """Whether a compiler fuses the operations between matrix products."""
    keeps_every_second: bool = False
    """Whether selective recomputation keeps every second matrix product (torchtitan), not all."""
    stops_early: bool = False
    """Whether recomputation of a block stops before its last product, which is not needed
    (torch)."""
    loss_in_place: bool = False
    """Whether softmax and gradient overwrite the logits (Megatron) instead of using new memory."""
    cast_bytes: PositiveInt = 3
    """Bytes read and written to cast an element of a product to 8 bits or fewer."""
    weight_bytes: PositiveInt = 4
    """Bytes of a stored parameter."""
    gathered_bytes: PositiveInt = 2
    """Bytes of a parameter as shards gather it and as compute uses it."""
    gradient_bytes: PositiveInt = 4
    """Bytes of a gradient as it is stored and reduced."""
    second_gradient_bytes: NonNegativeInt = 0
    """Bytes of a second, narrower copy of it."""
    accumulated_bytes: NonNegativeInt = 6
    """Bytes per parameter read and written to add a micro-batch's gradient to the sum: in 16 bits;
    12 in fp32."""
    sharded_gradient_bytes: PositiveInt = 4
    """Bytes of a gradient as shards reduce it after a step of one micro-batch."""
    state_bytes: NonNegativeFloat = 8
    """Optimizer state per parameter, including the optimizer's own copy of the weight."""
    divides_gradients: bool = False
    """Whether replicas that divide the optimizer state divide gradients, too (ZeRO-2): they reduce
    them after every micro-batch."""
    host_optimizer: bool = False
    """Whether the host keeps the optimizer state and updates the weights."""
    kept_cast_bytes: NonNegativeInt = 0
    """Bytes per parameter that autocast keeps from forward to backward of every micro-batch."""
    buffers_for_all: bool = False
    """Whether a stage has a receive buffer for every micro-batch of a step."""
    reserved: NonNegativeFloat = 0.0
    """Memory that the allocator holds beyond what is in use, relative to activations, working
    memory and logits."""
    base_bytes: NonNegativeInt = 0
    """Bytes on every device, independent of the training."""
    memory_low: PositiveFloat = 0.84
    memory_high: PositiveFloat = 1.18
    """One-sided 95 % bounds of the peak memory, relative to the prediction. The defaults are for
    engines without a table of their own: from 25 models of all tables (`python -m
    benchmarks.planner.score --left-out`)."""
    sync: AnySync = Field(default_factory=default_sync)
    """Synchronization mode of the replicas; the default all-reduces gradients in backward."""
