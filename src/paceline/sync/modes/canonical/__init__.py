"""`canonical`: an all-reduce of gradients with identical bits on any number of replicas."""

from functools import cache
from typing import ClassVar, Literal

from pydantic import Field

from paceline.specs import Layout, PacelineError
from paceline.specs.even_division import slice_of
from paceline.specs.plans.traffic import (
    NUMBER_BYTES,
    ReplicatedPart,
    Traffic,
    bucket_count,
    copied,
    transfer,
)
from paceline.sync.mode import SyncMode
from paceline.sync.modes.canonical.tree import subtrees


class Canonical(SyncMode):
    """Every batch has a fixed number of parts; their gradients are added in a fixed order."""

    hook_path: ClassVar[str] = "paceline.sync.modes.canonical.hook:CanonicalHook"

    mode: Literal["canonical"] = "canonical"
    parts: int | None = Field(default=None, ge=1)
    """Number of parts of every batch, on any number of replicas; if unset, the number of replicas
    at the first start."""

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return (
            "an all-reduce of the gradients in every step, with identical bits on any number of"
            " replicas"
        )

    @property
    def replicas_differ(self) -> bool:
        """All replicas have the same weights after every step."""
        return False

    @property
    def replicas_suffice(self) -> bool:
        """Each replica holds all state."""
        return True

    @property
    def batch_parts(self) -> int | None:
        """The number of parts of every batch."""
        return self.parts

    def for_replicas(self, replicas: int) -> "Canonical":
        """Return these settings with as many parts as replicas, if unset."""
        return self if self.parts is not None else self.model_copy(update={"parts": replicas})

    def forward_samples(self, batch: int, replicas: int) -> int:
        """Return the samples of a part, which is one forward."""
        return -(-batch // (self.parts or replicas))

    def check(self, layout: Layout) -> None:
        """Reject layouts whose results depend on the number of workers, or on chance."""
        if self.parts is not None and self.parts < layout.replicas:
            raise PacelineError(
                f"canonical:parts={self.parts} was given for {layout.replicas} replicas: some would"
                " get no part of a batch",
                fix=f"use at most {self.parts} replicas; a resumed run keeps its number of parts",
            )
        divided = [name for name in ("shards", "tensor", "pipeline") if getattr(layout, name) > 1]
        if divided:
            raise PacelineError(
                f"--sync canonical was given together with {divided[0]}="
                f"{getattr(layout, divided[0])}, where the order of PyTorch's sums depends on the"
                " number of workers",
                fix="use replicas only, or leave --sync canonical out",
            )
        if layout.batch_norm == "synchronized":
            raise PacelineError(
                "batch_norm=synchronized was given together with --sync canonical, in which every"
                " part of a batch has its own forward",
                fix="use --batch-norm local",
            )
        if layout.compile:
            raise PacelineError(
                "compile=true was given together with --sync canonical: compiled code depends on"
                " the shapes that a worker has seen before",
                fix="leave compile out",
            )
        super().check(layout)

    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return the communication of a step: each worker sends the sums of its subtrees to the
        owners of their pieces, and gathers the sums of all."""
        workers, parameters = part.workers, part.parameters
        parts, buckets = self.parts or workers, bucket_count(parameters, part.bucket_bytes)
        each = -(-parameters // buckets)
        sums = subtrees_of_workers(parts, workers)
        mean = sum(sums) / workers
        rows = -(-parts // workers)
        return Traffic(
            (
                transfer("all-to-all", workers, round(NUMBER_BYTES * each * mean), buckets),
                transfer("all-gather", workers, NUMBER_BYTES * each, buckets),
            ),
            busiest=workers,
            per_step=1.0,
            overlapped_steps=0,
            # Into a row, through the sum, concatenated, back; a row and a sum of each earlier part.
            device_bytes=copied(parameters, 4.5 + 2.5 * (rows - 1)),
            # All wait for the worker with the most subtrees.
            crossing=(max(sums) + 1) / (mean + 1),
        )

    def state_bytes(self, workers: int) -> float:
        """Return the bytes of the sums that a worker keeps per parameter between its parts."""
        return NUMBER_BYTES * rows_kept(self.parts or workers, workers)


@cache
def subtrees_of_workers(parts: int, workers: int) -> tuple[int, ...]:
    """Return the number of subtrees that each worker sends."""
    if parts == workers:
        return (1,) * workers
    return tuple(len(subtrees(slice_of(parts, workers, rank), parts)) for rank in range(workers))


@cache
def rows_kept(parts: int, workers: int) -> int:
    """Return the largest number of subtree sums that a worker keeps while it computes a part."""
    if parts <= workers:
        return 0
    shares = (slice_of(parts, workers, rank) for rank in range(workers))
    return max(
        len(subtrees(range(share.start, until), parts)) for share in shares for until in share
    )


MODE = Canonical()
