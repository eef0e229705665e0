"""The layout of a training over devices: parallelism, precision and memory."""

from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PositiveFloat

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError


class Position(NamedTuple):
    """A worker's position in a layout; all numbers count from 0."""

    stage: int
    replica: int
    shard: int
    slice: int


def _read_batch_norm(value: object) -> object:
    """Accept the spelling in plans of version 0.1."""
    return "synchronized" if value == "synchronised" else value


class Layout(Spec):
    """Parallelism degrees of a training, its micro-batches, precision and recomputation."""

    replicas: int = Field(default=1, ge=1)
    """Replicas of the model, each with its own part of the global batch."""
    shards: int = Field(default=1, ge=1)
    """Workers that shard one replica (FSDP): each keeps this fraction of weights, gradients and
    optimizer state, and gathers the rest when it is needed."""
    tensor: int = Field(default=1, ge=1)
    """Tensor-parallel workers of one replica, each with a slice of every layer."""
    pipeline: int = Field(default=1, ge=1)
    """Pipeline-parallel workers of one replica, each with some of its blocks."""
    context: int = Field(default=1, ge=1)
    """Context-parallel workers, each with some tokens of every sample: for other engines only."""
    expert: int = Field(default=1, ge=1)
    """Expert-parallel workers, each with some experts: for other engines only."""
    reshard: bool = True
    """With shards: free the gathered weights after forward and gather them again for backward."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Most samples in one forward of a worker; None: its whole local batch, divided for a
    pipeline."""
    precision: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    """Precision of matrix products; weights and optimizer state stay in fp32. fp8: for other
    engines only."""
    recompute: Literal["none", "selective", "block"] = "none"
    """What backward recomputes instead of keeping: nothing, all but matrix products and
    attention, or every block from its input."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] = "1f1b"
    """With a pipeline: the order in which stages process micro-batches."""
    sequence: bool = False
    """With tensor: keep activations between sliced layers divided along the sequence."""
    slices: dict[str, Literal["columns", "rows", "whole"]] = Field(default_factory=dict)
    """With tensor: how named layers are sliced (`*` matches anything), instead of the detected
    slicing."""
    batch_norm: Annotated[
        Literal["local", "synchronized"] | None, BeforeValidator(_read_batch_norm)
    ] = None
    """Batch normalization statistics: over a worker's local batch, or over the global batch.
    Required for a model with such layers if the two differ."""
    speeds: tuple[PositiveFloat, ...] | None = None
    """Relative speeds, one per node or one per worker: faster ones get more of the batch."""
    bucket_megabytes: int = Field(default=25, ge=1)
    """Bucket size of the replicas' gradient all-reduce."""
    compile: bool = False
    """Compile the model with torch.compile."""

    @property
    def workers(self) -> int:
        """Number of processes, one per device."""
        return self.data_workers * self.context * self.tensor * self.pipeline

    @property
    def data_workers(self) -> int:
        """Number of data-parallel ranks that share a global batch."""
        return self.replicas * self.shards

    @property
    def stages(self) -> int:
        """Number of pipeline stages: two per worker with interleaved and zero-bubble schedules."""
        return self.pipeline * (2 if self.schedule in ("interleaved", "zero-bubble") else 1)

    def micro_batches(self, largest_local_batch: int) -> int:
        """Return the number of micro-batches per local batch, the same on every worker.

        A pipeline uses a multiple of its number of workers, by default four per worker where the
        local batch is large enough. This keeps workers idle for less than a fifth of the time.
        """
        if self.micro_batch is not None:
            count = -(-largest_local_batch // self.micro_batch)
        else:
            count = 1 if self.pipeline == 1 else min(largest_local_batch, 4 * self.pipeline)
        return -(-max(count, self.pipeline) // self.pipeline) * self.pipeline

    def check(self) -> None:
        """Refuse settings that conflict with each other, or that only other engines have."""
        for name, degree in (("context", self.context), ("expert", self.expert)):
            if degree > 1:
                raise PacelineError(
                    f"{name}={degree} was given, but Paceline's engine has no {name} parallelism",
                    fix=f"leave {name} out, or plan for an engine that has it: `paceline plan"
                    " --engine megatron`",
                )
        if self.precision == "fp8":
            raise PacelineError(
                "precision=fp8 was given, but Paceline's engine computes in 16 bits or fp32",
                fix="use bf16, or plan for an engine that has it: `paceline plan --engine"
                " megatron`",
            )
        piped = self.pipeline > 1
        if self.compile and (piped or self.tensor > 1):
            raise PacelineError(
                f"compile=true was given together with {'pipeline' if piped else 'tensor'}, which"
                " calls the model in varying parts",
                fix="leave compile out, or use replicas and shards",
            )
        if piped and self.schedule == "zero-bubble" and self.shards > 1:
            raise PacelineError(
                "schedule=zero-bubble was given together with shards: PyTorch's split"
                " backward omits part of the gradients of shards",
                fix="use --schedule interleaved with shards, or replicas with zero-bubble",
            )
        if piped and self.schedule == "zero-bubble" and self.recompute == "selective":
            raise PacelineError(
                "schedule=zero-bubble was given together with recompute=selective: its backward"
                " has two halves, and the kept activations are freed after the first",
                fix="use --recompute block, or another --schedule",
            )
        if piped and self.sequence:
            raise PacelineError(
                "sequence=true was given together with pipeline: stages pass on whole sequences",
                fix="leave sequence out, or use tensor without a pipeline",
            )

    def position(self, rank: int) -> Position:
        """Return the position of worker `rank`.

        Adjacent ranks, on one node if possible, communicate the most: tensor-parallel slices first,
        then shards, then replicas, then pipeline stages.
        """
        rank, slice_number = divmod(rank, self.tensor)
        rank, shard = divmod(rank, self.shards)
        stage, replica = divmod(rank, self.replicas)
        return Position(stage, replica, shard, slice_number)

    def ranks_along(self, rank: int, *dimensions: str) -> list[int]:
        """Return the ranks of the workers whose positions differ from a worker's at most in these
        dimensions, such as "replicas"."""
        found, stride = [rank], 1
        for name in ("tensor", "shards", "replicas", "pipeline"):
            size = getattr(self, name)
            if name in dimensions:
                firsts = [each - each // stride % size * stride for each in found]
                found = [each + number * stride for number in range(size) for each in firsts]
            stride *= size
        return found

    def data_rank(self, rank: int) -> int:
        """Return the data-parallel rank of worker `rank`."""
        position = self.position(rank)
        return position.replica * self.shards + position.shard
