"""Habits of the software that trains, as far as a plan depends on them."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.sync import AnySync, SyncSettings, default_sync

SHARDED_LAUNCHES = 250
"""On CPUs: measured 80 to 170 alone, above 400 beside a busy neighbour (GPT example, FSDP2)."""


class Engine(Spec):
    """Habits of most trainers, unless said otherwise; `of_paceline` has its own."""

    overlap_data: bool = True
    """Gradients and gathered weights travel while something else is computed."""
    overlap_shards: bool = True
    """Shards do; not on CPUs, where nothing is computed while FSDP exchanges."""
    overlap_piped: bool = True
    """Replicas of a pipeline do."""
    bucket_bytes: NonNegativeInt | None = None
    """Gradients that replicas exchange at a time; where unset, a tenth of them."""
    overlap_tensor: Literal["no", "forward", "both"] = "no"
    """So do the sums over slices of a layer: in both directions (Megatron), or in forward only,
    where nearly all that torch's asynchronous ones gain is."""
    overlap_transfer: bool = False
    """So does what goes from stage to stage, where chunks are interleaved."""
    sharded_launches: NonNegativeInt = 0
    """What shards cost the host for each parameter's tensor, in small operations; on accelerators
    it runs ahead, and they cost nothing."""
    crossing_transfers: bool = False
    """What a stage sends on and what comes back to it cross each other, in one exchange."""
    gather_once: bool = False
    """In a pipeline, shards gather the weights of their stage once a step and keep them."""
    reduce_always: bool = False
    """Shards sum gradients after every micro-batch, not only after the last of a step."""
    compiled: bool = False
    """Operations between matrix products are fused by a compiler."""
    keeps_every_second: bool = False
    """Of matrix products, selective recomputation keeps every second (torchtitan), not all."""
    stops_early: bool = False
    """Blocks are computed again up to their last product, whose result nothing needs (torch)."""
    loss_in_place: bool = False
    """Softmax and gradient overwrite the logits (Megatron) instead of standing beside them."""
    cast_bytes: PositiveInt = 3
    """Read and written to bring an element of a product into 8 bits or fewer."""
    weight_bytes: PositiveInt = 4
    """Of a parameter, as it is kept."""
    gathered_bytes: PositiveInt = 2
    """Of a parameter, as shards gather it and as it is computed with."""
    gradient_bytes: PositiveInt = 4
    """Of a parameter, as gradients are kept and summed."""
    state_bytes: NonNegativeFloat = 8
    """Of a parameter, that the optimizer keeps, its own copy of the weight included."""
    kept_cast_bytes: NonNegativeInt = 0
    """Of a parameter, as autocast keeps it from forward to backward of every micro-batch."""
    buffers_for_all: bool = False
    """A stage has a place to receive every micro-batch of a step."""
    base_bytes: NonNegativeInt = 0
    """On every device, whatever is trained."""
    sync: AnySync = Field(default_factory=default_sync)
    """The synchronization mode of replicas; the engine itself sums gradients in backward."""

    @classmethod
    def of_paceline(
        cls,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> "Engine":
        """Paceline's: weights stay in fp32 where they are gathered, and products are cast; replicas
        of a pipeline exchange after its last micro-batch."""
        on_cpus = cluster.device.kind == "cpu"
        return cls(
            gathered_bytes=4,
            state_bytes=profile.state_bytes,
            overlap_shards=not on_cpus,
            sharded_launches=SHARDED_LAUNCHES if on_cpus else 0,
            overlap_piped=False,
            crossing_transfers=True,
            bucket_bytes=Layout().bucket_megabytes << 20,
            kept_cast_bytes=0 if precision == "fp32" else 2,
            buffers_for_all=True,
            sync=sync or default_sync(),
        )
