"""`allreduce`, the default: an all-reduce of the gradients in every step."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from paceline.specs.plans.traffic import ReplicatedPart, Traffic, bucket_count, copied
from paceline.sync.compression import PIECE, CompressedSync


class AllReduce(CompressedSync):
    """The mean gradient in every step: by PyTorch, or compressed by Paceline."""

    hook_path: ClassVar[str] = "paceline.sync.modes.allreduce.hook:allreduce_hook"

    mode: Literal["allreduce"] = "allreduce"

    @property
    def title(self) -> str:
        """The name of this mode in tables."""
        return f"all-reduce in {self.compress}" if self.compressed else "plain all-reduce"

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return f"an all-reduce of the gradients in every step{self._with_compression}"

    @property
    def by_engine(self) -> bool:
        """Whether PyTorch itself averages the gradients in backward."""
        return not self.compressed

    @property
    def replicas_differ(self) -> bool:
        """All replicas have the same weights after every step."""
        return False

    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return the communication of a step: a mean of each bucket."""
        workers, parameters = part.workers, part.parameters
        coding = self.coding_copies(workers)
        buckets = bucket_count(parameters, part.bucket_bytes) if self.compressed else 1
        means = self.mean_transfers(workers, -(-parameters // buckets), buckets, part.shapes)
        pieces = buckets - 1 + -(-parameters // PIECE)
        copies = copied(parameters, coding)
        return Traffic(means, workers, 1.0, 0, copies, launches=coding * pieces)

    def state_bytes(self, workers: int) -> float:
        """Return the bytes of the compression error per parameter."""
        return self.residual_bytes if workers > 1 else 0

    def extra_samples(self, workers: int) -> float:
        """Return the samples to the same loss, relative to a plain all-reduce: assumed."""
        return 1.0 + self.compression_samples if workers > 1 else 1.0

    def candidates(self) -> Iterator["AllReduce"]:
        """Yield settings that reach a loss in the same number of steps, or nearly."""
        yield AllReduce()
        yield AllReduce(compress="int8")
        yield AllReduce(compress="int4")


MODE = AllReduce()
