"""Result of a dry run: the memory and communication of chosen workers in a step."""

from pydantic import NonNegativeInt

from paceline.specs.base import Spec
from paceline.specs.plans.layout import Layout


class Transfer(Spec):
    """A worker's calls of one operation in a step, all of the same size."""

    operation: str
    """all-reduce, all-gather, reduce-scatter, broadcast, all-to-all, send, receive."""
    dimension: str
    """Layout dimensions that the process group spans, such as `shards`; several are joined by `
    x `."""
    workers: int
    """Size of the process group; 2 for a send."""
    inside_node: bool
    """Whether the whole process group is on one node."""
    bytes: NonNegativeInt
    """Bytes of one call: the tensor reduced or sent, gathered at the end, or scattered at the
    start."""
    count: NonNegativeInt
    """Calls per step."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all calls."""
        return self.bytes * self.count


class HeldParameters(Spec):
    """Parameters at the same position of repeated blocks, as a worker holds them."""

    name: str
    """Parameter name, with `*` for the block's number."""
    shape: tuple[int, ...]
    count: int


class Memory(Spec):
    """Bytes on a device; each field is its own maximum over a step."""

    parameters: NonNegativeInt
    gradients: NonNegativeInt
    optimizer: NonNegativeInt
    """State that the optimizer keeps from step to step, and the average of the weights."""
    activations: NonNegativeInt
    """Activations saved for backward, at the start of each backward; with recomputation, also
    recomputed ones that are in memory at that moment."""
    communication: NonNegativeInt
    """Weights gathered from other shards, and gradient buffers for communication between
    replicas."""
    peak: NonNegativeInt
    """Maximum of the total, with temporary tensors. Less than the sum of the other fields, which
    peak at different moments."""


class RankDryRun(Spec):
    """Memory and communication of one worker."""

    rank: int
    node: int
    """Node number, counted from 0."""
    stage: int
    replica: int
    shard: int
    slice: int
    parameters: int
    """Number of parameters that this worker holds."""
    memory: Memory
    largest: tuple[HeldParameters, ...]
    """The largest parameters, as this worker holds them."""
    transfers: tuple[Transfer, ...]
    """Every collective and point-to-point transfer of a step, the largest first."""

    def transferred_bytes(self, inside_node: bool) -> int:
        """Return the bytes of all calls of a step that stay inside a node, or that leave it."""
        return sum(each.total_bytes for each in self.transfers if each.inside_node == inside_node)


class DryRun(Spec):
    """A layout on a cluster, tried without the cluster."""

    layout: Layout
    nodes: int
    devices_per_node: int
    parameters: int
    """Parameters of the whole model."""
    parameter_bytes: int
    """Bytes of the whole model, which every worker builds before it keeps its part."""
    batch: int
    """Samples per step, over all workers."""
    micro_batches: int
    """Micro-batches per local batch."""
    micro_batch_samples: int
    """Samples in the largest micro-batch."""
    micro_batches_run: int
    """Micro-batches that were run; results for the others are extrapolated."""
    ranks: tuple[RankDryRun, ...]
    """One worker per pipeline stage: all others look the same."""
    seconds: float
    """Duration of the dry run."""
