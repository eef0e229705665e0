"""The cost of one step of a model, per block and sample, independent of the hardware."""

from itertools import pairwise
from typing import Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from paceline.specs.base import FiniteSpec

TrainingPrecision = Literal["fp32", "bf16", "fp16", "fp8"]
"""Precision of matrix products; fp8 is planned for other engines than Paceline's."""


UncountedScale = Literal["matrix product rates", "memory bandwidths"]
"""What the times of uncounted operators on another device follow."""


class Matmul(FiniteSpec):
    """A matrix product of forward, for one sample; backward has two of the same size."""

    rows: PositiveInt
    """Rows for one sample; b samples have b times as many, unless `each_sample`."""
    inner: PositiveInt
    columns: PositiveInt
    repeats: PositiveInt = 1
    """Independent products of this size: attention heads, experts."""
    each_sample: bool = False
    """Whether b samples have b times as many products instead of more rows: attention heads."""
    count: PositiveFloat = 1.0
    """Occurrences in a block; a fraction if blocks differ and this one is their mean."""
    computed: float = Field(default=1.0, gt=0, le=1)
    """Fraction that is computed: one half if a causal mask skips the rest."""
    reused: float = Field(default=1.0, ge=1)
    """Rows that share an input element, as the windows of a convolution do; it is read once for
    all."""
    sliced: Literal["columns", "inner", "repeats", "whole"]
    """The dimension that tensor parallelism divides; `whole`: none."""
    attention: bool = False
    """Whether the product belongs to the core of attention."""
    queries_per_key: PositiveInt = 1
    """Query heads that share keys and values, if it does."""
    routed: bool = False
    """Whether `repeats` are experts, which expert parallelism divides."""

    @property
    def flops(self) -> float:
        """Forward FLOPs for one sample."""
        size = 2.0 * self.rows * self.inner * self.columns * self.repeats
        return size * self.computed * self.count


class Timing(FiniteSpec):
    """Seconds of one block on one device, for micro-batches of several sizes."""

    samples: tuple[PositiveInt, ...]
    """Sizes of the micro-batches, ascending."""
    forward_seconds: tuple[NonNegativeFloat, ...]
    backward_seconds: tuple[NonNegativeFloat, ...]

    @model_validator(mode="after")
    def _has_one_time_for_each(self) -> Self:
        sizes, times = self.samples, (self.forward_seconds, self.backward_seconds)
        if not sizes or any(len(each) != len(sizes) for each in times):
            raise ValueError("samples, forward_seconds and backward_seconds differ in number")
        if any(one >= next_one for one, next_one in pairwise(sizes)):
            raise ValueError("samples must ascend")
        return self


class ModelTimes(FiniteSpec):
    """Seconds of a step's parts on one device, for micro-batches of several sizes."""

    samples: tuple[PositiveInt, ...]
    parts: tuple[tuple[NonNegativeFloat, ...], ...]
    """For each size, forward seconds before the blocks, in the blocks and after them; then
    backward seconds in the reverse order."""
    optimizer_seconds: NonNegativeFloat


class LayerCost(FiniteSpec):
    """One block, or one of several equal blocks. Bytes are of one sample, in forward."""

    name: str
    count: PositiveInt = 1
    """Equal blocks in sequence."""
    matmuls: tuple[Matmul, ...] = ()
    repeated: bool = False
    """Whether this is a repeated block, the unit of recomputation and pipeline stages."""
    kernels: PositiveInt
    """Kernel launches in forward."""
    parameters: NonNegativeInt
    """Parameters of one block that tensor parallelism divides."""
    parameters_whole: NonNegativeInt = 0
    """Parameters of one block that every tensor-parallel slice holds whole."""
    parameters_experts: NonNegativeInt = 0
    """Those of `parameters` that expert parallelism divides instead."""
    moved_bytes: NonNegativeFloat = 0
    """Bytes read and written between matrix products; tensor parallelism divides them."""
    moved_bytes_whole: NonNegativeFloat = 0
    """The same for bytes that only sequence parallelism divides."""
    moved_bytes_attention: NonNegativeFloat = 0
    """The same in the core of attention; tensor parallelism divides them."""
    saved_bytes: NonNegativeFloat = 0
    """Bytes saved for backward; tensor parallelism divides them."""
    saved_bytes_whole: NonNegativeFloat = 0
    """The same for bytes that only sequence parallelism divides."""
    saved_bytes_attention: NonNegativeFloat = 0
    """The same in the core of attention; tensor parallelism divides them."""
    product_bytes: NonNegativeFloat = 0
    """Bytes saved under selective recomputation (only matrix products and attention are kept);
    tensor parallelism divides them."""
    product_bytes_whole: NonNegativeFloat = 0
    """The same for bytes that only sequence parallelism divides."""
    output_bytes: NonNegativeFloat
    """Bytes of the block's output, which every tensor-parallel all-reduce also carries."""
    reductions: NonNegativeFloat = 0
    """Tensor-parallel all-reduces in forward; backward has as many."""
    context_bytes: NonNegativeFloat = 0
    """Bytes of the keys and values, which context-parallel workers pass on; tensor parallelism
    divides them. 0: the block cannot be divided along the sequence."""
    routed_bytes: NonNegativeFloat = 0
    """Bytes of the tokens on their way to experts, one copy for each; only sequence parallelism
    divides them."""
    timing: Timing | None = None
    """Measured times on `Profile.measured_on`."""
    uncounted: Timing | None = None
    """Times of operators whose FLOPs are not counted, scaled to the planned device."""

    @property
    def forward_flops(self) -> float:
        """Forward FLOPs of one block for one sample."""
        return sum(each.flops for each in self.matmuls)

    @property
    def backward_flops(self) -> float:
        """Backward FLOPs of one block for one sample: gradients of weights and of inputs."""
        return 2.0 * self.forward_flops


class Profile(FiniteSpec):
    """A model: the layers before its blocks, the equal blocks, the layers after them."""

    name: str
    before: LayerCost
    block: LayerCost
    after: LayerCost
    sequence: PositiveInt | None = None
    """Tokens per sample; None if the samples are not made of tokens, or it is not known."""
    batch_norm: bool = False
    """Whether the model has batch normalization, for which a layout must set a mode."""
    tensors: PositiveInt = 1
    """Number of parameter tensors."""
    state_bytes: NonNegativeFloat = 8
    """Optimizer state per parameter: 8 bytes for Adam in fp32; 4 more for an average."""
    measured_on: str | None = None
    """The device on which timings were measured."""
    uncounted_operators: tuple[str, ...] = ()
    """Operators without a FLOP count, such as those of an LSTM."""
    uncounted_on: str | None = None
    """The device on which these were timed; None if their time is unknown."""
    uncounted_scale: PositiveFloat = 1.0
    """Time on the planned device relative to `uncounted_on`."""
    uncounted_scaled_by: UncountedScale = "matrix product rates"
    """What this is the ratio of."""
    optimizer_seconds: NonNegativeFloat | None = None
    """Measured optimizer step over all parameters."""

    @property
    def layers(self) -> tuple[LayerCost, LayerCost, LayerCost]:
        """The three layers in the order of forward."""
        return self.before, self.block, self.after

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return sum(each.count * (each.parameters + each.parameters_whole) for each in self.layers)

    @property
    def flops(self) -> float:
        """FLOPs of forward and backward for one sample, without recomputation."""
        return sum(each.count * (each.forward_flops + each.backward_flops) for each in self.layers)


class TrainingProfile(FiniteSpec):
    """A user's training: the model's profile in each precision, and how it is trained."""

    train: str
    """Name of the file and of the function in it."""
    function: str
    batch: PositiveInt
    steps: PositiveInt
    precisions: dict[TrainingPrecision, Profile]

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Profiles of all precisions."""
        return tuple(self.precisions.values())
