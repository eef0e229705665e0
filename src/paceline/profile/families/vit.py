"""Vision transformers: an image as a sequence of patches plus a class token."""

from pydantic import PositiveInt, model_validator

from paceline.profile.families.transformer import WORD, Transformer, block
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.profile import LayerCost, Matmul, Profile

COLORS = 3


class ViT(Transformer):
    """A vision transformer."""

    image: PositiveInt
    """Pixels per side."""
    patch: PositiveInt
    """Pixels per side of a patch, which becomes one token."""
    classes: PositiveInt

    @model_validator(mode="after")
    def _check_patches(self) -> "ViT":
        if self.image % self.patch:
            raise PacelineError(
                f"image={self.image} is not divided by patch={self.patch}",
                fix="give an image of whole patches",
            )
        return self

    @property
    def patches(self) -> int:
        """Patches per image."""
        return (self.image // self.patch) ** 2


def vit(shape: ViT) -> Profile:
    """Return the costs of a vision transformer that classifies images."""
    return Profile(
        name=f"vit of {shape.layers} x {shape.hidden}",
        before=_patches(shape),
        block=block(shape, shape.patches + 1),
        after=_head(shape),
    )


def _patches(shape: ViT) -> LayerCost:
    """Return the cost of patch embedding: a convolution without overlap, class token and
    positions."""
    pixels = COLORS * shape.patch**2
    tokens = shape.patches + 1
    elements = tokens * shape.hidden
    return LayerCost(
        name="patches",
        matmuls=(Matmul(rows=shape.patches, inner=pixels, columns=shape.hidden, sliced="whole"),),
        kernels=4,
        parameters=0,
        parameters_whole=(pixels + 1 + 1 + tokens) * shape.hidden,
        moved_bytes_whole=4 * WORD * elements,
        saved_bytes_whole=WORD * COLORS * shape.image**2 + (elements if shape.dropout else 0),
        output_bytes=WORD * elements,
    )


def _head(shape: ViT) -> LayerCost:
    """Return the cost of the head: normalization of all tokens, and the classifier on the first."""
    elements = (shape.patches + 1) * shape.hidden
    return LayerCost(
        name="head",
        matmuls=(Matmul(rows=1, inner=shape.hidden, columns=shape.classes, sliced="columns"),),
        kernels=6,
        parameters=shape.hidden * shape.classes,
        parameters_whole=2 * shape.hidden + shape.classes,
        moved_bytes_whole=2 * WORD * elements,
        saved_bytes=(WORD + 4 + 4) * shape.classes,
        saved_bytes_whole=WORD * (elements + shape.hidden),
        output_bytes=WORD * elements,
    )
