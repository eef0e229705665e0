"""How a training is laid out over devices."""

from typing import Literal, NamedTuple

from pydantic import Field, PositiveFloat

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError


class Position(NamedTuple):
    """Where a worker stands in a layout, each number counted from 0."""

    stage: int
    replica: int
    shard: int
    slice: int


class Layout(Spec):
    """How often the model stands on the cluster, how it is divided, in what it computes."""

    replicas: int = Field(default=1, ge=1)
    """Copies of the model, each on its own part of the global batch."""
    shards: int = Field(default=1, ge=1)
    """Workers that share one copy: each keeps this fraction of weights, gradients and optimizer
    state, and gathers the rest when it is needed."""
    tensor: int = Field(default=1, ge=1)
    """Workers that compute every layer of one copy together, each a slice of it."""
    pipeline: int = Field(default=1, ge=1)
    """Workers that hold one copy behind each other, each some of its blocks."""
    reshard: bool = True
    """With shards: free the gathered weights after forward and gather them again for backward."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Samples in one forward of a worker at the most; its whole share where unset."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What matrix products are computed in; weights and optimizer state stay in fp32."""
    recompute: Literal["none", "selective", "block"] = "none"
    """What backward computes again instead of keeping: nothing, all but matrix products and
    attention, or every block from its input."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] = "1f1b"
    """With a pipeline: the order in which micro-batches pass its stages."""
    sequence: bool = False
    """With tensor: keep what lies between sliced layers divided along the sequence."""
    slices: dict[str, Literal["columns", "rows", "whole"]] = Field(default_factory=dict)
    """With tensor: how named layers are sliced (`*` stands for anything), instead of as found."""
    batch_norm: Literal["local", "synchronised"] | None = None
    """Over what batch normalisation takes its statistics: a worker's own share of the batch, or
    the whole. A model that has such layers must say it where the two differ."""
    speeds: tuple[PositiveFloat, ...] | None = None
    """Relative speeds, one per node or one per worker: faster ones get more of the batch."""
    bucket_megabytes: int = Field(default=25, ge=1)
    """Gradients that replicas exchange at a time."""
    compile: bool = False
    """Compile the model with torch.compile."""

    @property
    def workers(self) -> int:
        """Processes, one per device, that this layout needs."""
        return self.data_workers * self.tensor * self.pipeline

    @property
    def data_workers(self) -> int:
        """Parts that a global batch is divided into."""
        return self.replicas * self.shards

    @property
    def stages(self) -> int:
        """Stages of a pipeline: two on every worker where the schedule goes round twice."""
        return self.pipeline * (2 if self.schedule in ("interleaved", "zero-bubble") else 1)

    def check(self) -> None:
        """Say which of these settings do not go together."""
        piped = self.pipeline > 1
        if self.compile and (piped or self.tensor > 1):
            raise PacelineError(
                f"compile=true was given together with {'pipeline' if piped else 'tensor'}, under"
                " which the model is called in parts that differ from call to call",
                fix="leave compile out, or use replicas and shards",
            )
        if piped and self.schedule == "zero-bubble" and self.shards > 1:
            raise PacelineError(
                "schedule=zero-bubble was given together with shards: PyTorch's backward in two"
                " halves leaves out part of the gradients of shards",
                fix="use --schedule interleaved with shards, or replicas with zero-bubble",
            )
        if piped and self.schedule == "zero-bubble" and self.recompute == "selective":
            raise PacelineError(
                "schedule=zero-bubble was given together with recompute=selective: its backward has"
                " two halves, and what was kept for the first is gone in the second",
                fix="use --recompute block, or another --schedule",
            )
        if piped and self.sequence:
            raise PacelineError(
                "sequence=true was given together with pipeline: stages pass on whole sequences",
                fix="leave sequence out, or use tensor without a pipeline",
            )

    def position(self, rank: int) -> Position:
        """Where worker `rank` stands. Neighbours, on one node where it fits, exchange the most:
        slices of a layer, then shards, then replicas, and stages the least."""
        rank, slice_number = divmod(rank, self.tensor)
        rank, shard = divmod(rank, self.shards)
        stage, replica = divmod(rank, self.replicas)
        return Position(stage, replica, shard, slice_number)

    def data_rank(self, rank: int) -> int:
        """Which part of every global batch worker `rank` works on."""
        position = self.position(rank)
        return position.replica * self.shards + position.shard
