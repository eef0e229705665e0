"""How a training is laid out over devices."""

from typing import Literal

from pydantic import Field, PositiveFloat

from paceline.specs.base import Spec


class Layout(Spec):
    """How often the model stands on the cluster, how it is divided, in what it computes."""

    replicas: int = Field(default=1, ge=1)
    """Copies of the model, each on its own part of the global batch."""
    shards: int = Field(default=1, ge=1)
    """Workers that share one copy: each keeps this fraction of weights, gradients and optimizer
    state, and gathers the rest when it is needed."""
    reshard: bool = True
    """With shards: free the gathered weights after forward and gather them again for backward."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Samples in one forward of a worker at the most; its whole share where unset."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What matrix products are computed in; weights and optimizer state stay in fp32."""
    recompute: Literal["none", "selective", "block"] = "none"
    """What backward computes again instead of keeping: nothing, all but matrix products and
    attention, or every block from its input."""
    speeds: tuple[PositiveFloat, ...] | None = None
    """Relative speeds, one per node or one per worker: faster ones get more of the batch."""
    bucket_megabytes: int = Field(default=25, ge=1)
    """Gradients that replicas exchange at a time."""
    compile: bool = False
    """Compile the model with torch.compile."""

    @property
    def workers(self) -> int:
        """Processes, one per device, that this layout needs."""
        return self.replicas * self.shards


class Plan(Spec):
    """What a run is to do: what `paceline run --plan` reads and every run folder keeps."""

    layout: Layout = Layout()
