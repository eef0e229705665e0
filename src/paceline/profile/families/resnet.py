"""Residual networks for images (He et al. 2015), as PyTorch trains them.

This is v1.5, with strides in the 3 x 3 convolutions, and with ReLU in place. A convolution is a
product: rows = output pixels, inner = input channels times window. Blocks differ, so the profile
has their mean; convolutions are never sliced.
"""

from collections import Counter
from math import ceil
from typing import Literal, NamedTuple

from pydantic import PositiveInt

from paceline.specs.base import Spec
from paceline.specs.measurements.profile import LayerCost, Matmul, Profile

WORD = 2
"""Bytes of an activation: planned trainings compute in 16 bits."""
INDEX = 8
"""Bytes of an index that max pooling keeps per output."""
COLORS, STEM = 3, 64
BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
"""Blocks of each of the four widths, by depth."""
BOTTLENECK = 50
"""Depth from which blocks have three convolutions and an output of four times their width."""
NORM_PASSES, RELU_PASSES, ADD_PASSES = 3, 2, 3
"""Reads and writes of a tensor per operation: a norm reads it twice, for statistics and to apply
them."""


class ResNet(Spec):
    """A residual network."""

    depth: Literal[18, 34, 50, 101, 152]
    image: PositiveInt
    """Pixels per side."""
    classes: PositiveInt


class _Convolution(NamedTuple):
    """A convolution with the batch norm behind it."""

    pixels: int
    """Output pixels."""
    inputs: int
    outputs: int
    window: int

    @property
    def elements(self) -> int:
        return self.pixels * self.outputs

    @property
    def parameters(self) -> int:
        return self.inputs * self.window**2 * self.outputs + 2 * self.outputs

    @property
    def product(self) -> Matmul:
        return Matmul(
            rows=self.pixels,
            inner=self.inputs * self.window**2,
            columns=self.outputs,
            reused=self.window**2,
            sliced="whole",
        )


class _Block(NamedTuple):
    path: tuple[_Convolution, ...]
    shortcut: tuple[_Convolution, ...]
    """A convolution if the shape changes, else empty."""
    input_elements: int

    @property
    def all(self) -> tuple[_Convolution, ...]:
        return self.path + self.shortcut

    @property
    def output_elements(self) -> int:
        return self.path[-1].elements

    @property
    def kernels(self) -> int:
        """Kernel launches: a norm also counts its batches; each convolution of the path has a
        ReLU; one sum."""
        return 4 * len(self.path) + 3 * len(self.shortcut) + 1

    @property
    def moved_elements(self) -> int:
        return (
            NORM_PASSES * sum(each.elements for each in self.all)
            + RELU_PASSES * sum(each.elements for each in self.path)
            + ADD_PASSES * self.output_elements
        )

    @property
    def saved_elements(self) -> int:
        """Inputs of norms, and outputs of ReLUs that go to the next convolution or block."""
        return sum(each.elements for each in self.all) + sum(each.elements for each in self.path)

    @property
    def product_elements(self) -> int:
        """Input of the block, and outputs of its convolutions."""
        return self.input_elements + sum(each.elements for each in self.all)


def resnet(shape: ResNet) -> Profile:
    """Return the costs of a residual network, trained by SGD with momentum."""
    stem = _halved(shape.image)
    blocks = _blocks(shape.depth, _halved(stem))
    return Profile(
        name=f"resnet of {shape.depth}",
        before=_stem(shape.image, stem),
        block=_mean(blocks),
        after=_head(blocks[-1].path[-1].outputs, shape.classes),
        batch_norm=True,
        state_bytes=4,
    )


def _halved(side: int) -> int:
    """Return the side of an image after a padded window with stride 2."""
    return (side + 1) // 2


def _blocks(depth: int, side: int) -> list[_Block]:
    found: list[_Block] = []
    inputs = STEM
    for stage, number in enumerate(BLOCKS[depth]):
        width = STEM * 2**stage
        for index in range(number):
            before, stride = side, 2 if stage and not index else 1
            side = _halved(side) if stride > 1 else side
            path = _path(depth, inputs, width, before**2, side**2)
            outputs = path[-1].outputs
            changes = stride > 1 or inputs != outputs
            shortcut = (_Convolution(side**2, inputs, outputs, 1),) if changes else ()
            found.append(_Block(path, shortcut, before**2 * inputs))
            inputs = outputs
    return found


def _path(
    depth: int, inputs: int, width: int, pixels_in: int, pixels_out: int
) -> tuple[_Convolution, ...]:
    if depth < BOTTLENECK:
        return (
            _Convolution(pixels_out, inputs, width, 3),
            _Convolution(pixels_out, width, width, 3),
        )
    return (
        _Convolution(pixels_in, inputs, width, 1),
        _Convolution(pixels_out, width, width, 3),
        _Convolution(pixels_out, width, 4 * width, 1),
    )


def _mean(blocks: list[_Block]) -> LayerCost:
    """Return the mean block: the products of all blocks, each with its mean count."""
    number = len(blocks)
    times = Counter(each.product for block in blocks for each in block.all)
    return LayerCost(
        name="block",
        count=number,
        repeated=True,
        matmuls=tuple(
            product.model_copy(update={"count": occurrences / number})
            for product, occurrences in times.items()
        ),
        kernels=ceil(sum(each.kernels for each in blocks) / number),
        parameters=0,
        parameters_whole=round(
            sum(each.parameters for block in blocks for each in block.all) / number
        ),
        moved_bytes_whole=WORD * sum(each.moved_elements for each in blocks) / number,
        saved_bytes_whole=WORD * sum(each.saved_elements for each in blocks) / number,
        product_bytes_whole=WORD * sum(each.product_elements for each in blocks) / number,
        output_bytes=WORD * sum(each.output_elements for each in blocks) / number,
    )


def _stem(image: int, side: int) -> LayerCost:
    """Return the cost of the stem: a 7 x 7 convolution and max pooling, both with stride 2."""
    convolution = _Convolution(side**2, COLORS, STEM, 7)
    pooled = _halved(side) ** 2 * STEM
    pixels = COLORS * image**2
    return LayerCost(
        name="stem",
        matmuls=(convolution.product,),
        kernels=5,
        parameters=0,
        parameters_whole=convolution.parameters,
        moved_bytes_whole=WORD * ((NORM_PASSES + RELU_PASSES + 1) * convolution.elements + pooled)
        + INDEX * pooled,
        saved_bytes_whole=WORD * (pixels + 2 * convolution.elements + pooled) + INDEX * pooled,
        output_bytes=WORD * pooled,
    )


def _head(features: int, classes: int) -> LayerCost:
    """Return the cost of the head: the mean over all pixels, and the classifier."""
    return LayerCost(
        name="head",
        matmuls=(Matmul(rows=1, inner=features, columns=classes, sliced="columns"),),
        kernels=5,
        parameters=features * classes,
        parameters_whole=classes,
        saved_bytes=(WORD + 4 + 4) * classes,
        saved_bytes_whole=WORD * features,
        output_bytes=WORD * features,
    )
