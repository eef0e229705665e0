"""What one step of a model costs, block by block and for one sample, whatever the hardware."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from paceline.specs.base import Spec

TrainingPrecision = Literal["fp32", "bf16", "fp16"]


class Matmul(Spec):
    """A matrix product of forward, for one sample; backward takes two of the same size."""

    rows: PositiveInt
    """Of one sample; a micro-batch of b samples has b times as many, unless `each_sample`."""
    inner: PositiveInt
    columns: PositiveInt
    repeats: PositiveInt = 1
    """Products of this size, computed side by side: attention heads, experts."""
    each_sample: bool = False
    """Whether a micro-batch has more of them, and not more rows in each: attention heads."""
    count: PositiveFloat = 1.0
    """Times in a block; a fraction where blocks differ and this one is their mean."""
    computed: float = Field(default=1.0, gt=0, le=1)
    """The part that is computed: a half where a causal mask lets the rest be left out."""
    reused: float = Field(default=1.0, ge=1)
    """Rows that have an element of the input in common, as windows of a convolution do: it is read
    once for all of them."""
    sliced: Literal["columns", "inner", "repeats", "whole"]
    """What tensor parallelism divides; nothing of a product that stays whole."""
    attention: bool = False
    """Whether it belongs to the core of attention."""

    @property
    def flops(self) -> float:
        """Of one sample, forward."""
        size = 2.0 * self.rows * self.inner * self.columns * self.repeats
        return size * self.computed * self.count


class Timing(Spec):
    """Seconds that one block took on one device, for micro-batches of several sizes."""

    samples: tuple[PositiveInt, ...]
    """Of the micro-batches, growing."""
    forward_seconds: tuple[NonNegativeFloat, ...]
    backward_seconds: tuple[NonNegativeFloat, ...]


class ModelTimes(Spec):
    """What a step's parts took on one device, for micro-batches of several sizes."""

    samples: tuple[PositiveInt, ...]
    parts: tuple[tuple[NonNegativeFloat, ...], ...]
    """For each size, seconds of: before the blocks, the blocks, after them; then backward of what
    is after, of the blocks, of what is before."""
    optimizer_seconds: NonNegativeFloat


class LayerCost(Spec):
    """One block, or one of several equal ones. Bytes are of one sample, in forward."""

    name: str
    count: PositiveInt = 1
    """Equal blocks in a row."""
    matmuls: tuple[Matmul, ...] = ()
    repeated: bool = False
    """Whether it is one of the blocks, which recomputation and pipelines divide the model into."""
    kernels: PositiveInt
    """Operations that the host launches in forward."""
    parameters: NonNegativeInt
    """Of one block, those that tensor parallelism divides."""
    parameters_whole: NonNegativeInt = 0
    """Of one block, those that every slice has."""
    moved_bytes: NonNegativeFloat = 0
    """Read and written between the matrix products, divided by tensor parallelism."""
    moved_bytes_whole: NonNegativeFloat = 0
    """The same, not divided unless along the sequence."""
    moved_bytes_attention: NonNegativeFloat = 0
    """The same in the core of attention, divided."""
    saved_bytes: NonNegativeFloat = 0
    """Kept for backward, divided by tensor parallelism."""
    saved_bytes_whole: NonNegativeFloat = 0
    """The same, not divided unless along the sequence."""
    saved_bytes_attention: NonNegativeFloat = 0
    """The same in the core of attention, divided."""
    product_bytes: NonNegativeFloat = 0
    """Kept where all but matrix products and attention is computed again, divided."""
    product_bytes_whole: NonNegativeFloat = 0
    """The same, not divided unless along the sequence."""
    output_bytes: NonNegativeFloat
    """What the next block gets, and what every reduction over slices is about."""
    reductions: NonNegativeFloat = 0
    """Sums over the slices of a layer in forward; backward has as many."""
    timing: Timing | None = None
    """Measured, on `Profile.measured_on`."""

    @property
    def forward_flops(self) -> float:
        """Of one block and one sample."""
        return sum(each.flops for each in self.matmuls)

    @property
    def backward_flops(self) -> float:
        """Of one block and one sample: by the weights and by the inputs."""
        return 2.0 * self.forward_flops


class Profile(Spec):
    """A model: what comes before its blocks, the equal blocks, what comes after them."""

    name: str
    before: LayerCost
    block: LayerCost
    after: LayerCost
    batch_norm: bool = False
    """Whether it has batch normalisation, over which a layout has to say what it does."""
    tensors: PositiveInt = 1
    """That the parameters are kept in."""
    state_bytes: NonNegativeFloat = 8
    """That the optimizer keeps for one parameter: 8 for Adam in fp32."""
    measured_on: str | None = None
    """The device that timings were taken on."""
    optimizer_seconds: NonNegativeFloat | None = None
    """Of an optimizer's step over all parameters, measured there."""

    @property
    def layers(self) -> tuple[LayerCost, LayerCost, LayerCost]:
        """In the order of forward."""
        return self.before, self.block, self.after

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        return sum(each.count * (each.parameters + each.parameters_whole) for each in self.layers)

    @property
    def flops(self) -> float:
        """Of one sample, forward and backward, without anything computed again."""
        return sum(each.count * (each.forward_flops + each.backward_flops) for each in self.layers)


class TrainingProfile(Spec):
    """A user's training: what its model costs in each precision, and how it is trained."""

    train: str
    """The name of the file, and of the function in it."""
    function: str
    batch: PositiveInt
    steps: PositiveInt
    precisions: dict[TrainingPrecision, Profile]

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Of all precisions."""
        return tuple(self.precisions.values())
