"""What a dry run finds: what each chosen worker would hold, and send, in a step."""

from pydantic import NonNegativeInt

from paceline.specs.base import Spec
from paceline.specs.plans.layout import Layout


class Transfer(Spec):
    """Calls of one kind that a worker makes in a step, all of the same size."""

    operation: str
    """all-reduce, all-gather, reduce-scatter, broadcast, all-to-all, send, receive."""
    dimension: str
    """In which dimensions of the layout those who take part differ: `shards`, say; several are
    joined by ` x `."""
    workers: int
    """Those who take part; 2 in a send."""
    inside_node: bool
    """Whether all of them are on one node."""
    bytes: NonNegativeInt
    """Of one call: what is reduced, sent, gathered in the end, or scattered in the beginning."""
    count: NonNegativeInt
    """Calls in a step."""

    @property
    def total_bytes(self) -> int:
        """Of all calls together."""
        return self.bytes * self.count


class HeldParameters(Spec):
    """Parameters with the same place in repeated blocks, as a worker holds them."""

    name: str
    """With `*` for the number of the block."""
    shape: tuple[int, ...]
    count: int


class Memory(Spec):
    """Bytes on a device, each the most at any moment of a step."""

    parameters: NonNegativeInt
    gradients: NonNegativeInt
    optimizer: NonNegativeInt
    """What the optimizer keeps from step to step."""
    activations: NonNegativeInt
    """What forward has kept for backward, each time a backward begins; with recomputation, also
    what was computed again and is kept at that moment."""
    exchange: NonNegativeInt
    """Weights gathered from other shards, and gradients laid out for the other replicas."""
    peak: NonNegativeInt
    """All of it together, with what is computed on the way; not the sum of the others, which are
    not at their most at the same moment."""


class RankPicture(Spec):
    """What one worker would hold and send."""

    rank: int
    node: int
    """Counted from 0."""
    stage: int
    replica: int
    shard: int
    slice: int
    parameters: int
    """How many this worker holds."""
    memory: Memory
    largest: tuple[HeldParameters, ...]
    """The largest parameters as they are held here."""
    transfers: tuple[Transfer, ...]
    """Every collective and every point-to-point transfer of a step, the heaviest first."""

    def transferred_bytes(self, inside_node: bool) -> int:
        """Of all calls of a step that stay inside a node, or of those that do not."""
        return sum(each.total_bytes for each in self.transfers if each.inside_node == inside_node)


class DryRun(Spec):
    """A layout on a cluster, tried without the cluster."""

    layout: Layout
    nodes: int
    devices_per_node: int
    parameters: int
    """Of the whole model."""
    parameter_bytes: int
    """Of the whole model, which every worker builds before it keeps its part."""
    batch: int
    """Samples in a step, over all workers."""
    micro_batches: int
    """That a worker's share of the batch passes in."""
    micro_batch_samples: int
    """In one micro-batch, at the most."""
    micro_batches_run: int
    """Of how many the numbers were found; for all others they follow from these."""
    ranks: tuple[RankPicture, ...]
    """One for each stage of a pipeline: the others look the same."""
    seconds: float
    """That the dry run took."""
