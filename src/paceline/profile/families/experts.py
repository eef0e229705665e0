"""Mixture-of-experts decoders, such as Mixtral: a router selects experts for every token.

Paceline has no expert parallelism: expert weights are sharded, or sliced like those of any MLP.
"""

from math import ceil

from pydantic import PositiveInt, model_validator

from paceline.profile.families.decoder import Llama, decoder_block, embedding, head
from paceline.profile.families.transformer import WORD
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.profile import LayerCost, Matmul, Profile

SCORE = 4
"""Bytes of a router score for one expert: fp32."""


class Experts(Llama):
    """A decoder with experts; the defaults are those of Llama."""

    experts: PositiveInt
    active: PositiveInt
    """Experts per token."""

    @model_validator(mode="after")
    def _check_active(self) -> "Experts":
        if self.active > self.experts:
            raise PacelineError(
                f"active={self.active} is more than experts={self.experts}",
                fix="give at most as many active experts as there are",
            )
        return self


def experts(shape: Experts) -> Profile:
    """Return the costs of a decoder whose experts get equally many tokens."""
    return Profile(
        name=f"decoder of {shape.layers} x {shape.hidden} with {shape.experts} experts",
        before=embedding(shape),
        block=_block(shape),
        after=head(shape),
    )


def _block(shape: Experts) -> LayerCost:
    """Return the cost of a block whose MLP processes every token once per active expert.

    Tokens are sorted by expert, so that one launch computes a product of all experts.
    """
    dense = decoder_block(shape)
    s, h, f, number = shape.seq, shape.hidden, shape.ffn_width, shape.experts
    copies = s * shape.active
    more = copies - s
    up = 2 if shape.gated else 1
    biases = 0 if shape.gated else (number - 1) * (f + h)
    return dense.model_copy(
        update={
            "matmuls": (
                *dense.matmuls[:-2],
                Matmul(rows=s, inner=h, columns=number, sliced="whole"),
                *_products(shape, up),
            ),
            "kernels": dense.kernels + 12,
            "parameters": dense.parameters + (number - 1) * (up + 1) * h * f,
            "parameters_whole": dense.parameters_whole + h * number + biases,
            "moved_bytes": dense.moved_bytes + WORD * more * (up + 1) * f,
            # Tokens to the experts and back, read and written; router scores, softmax and sorting.
            "moved_bytes_whole": dense.moved_bytes_whole
            + 4 * WORD * copies * h
            + 6 * SCORE * s * number,
            "saved_bytes": dense.saved_bytes + WORD * more * (up + 1) * f,
            # Inputs of the experts, and their outputs before weighting.
            "saved_bytes_whole": dense.saved_bytes_whole
            + 2 * WORD * copies * h
            + SCORE * s * number,
            "product_bytes": dense.product_bytes + WORD * more * up * f,
            "product_bytes_whole": dense.product_bytes_whole + WORD * (more * h + s * number),
        }
    )


def _products(shape: Experts, up: int) -> tuple[Matmul, Matmul]:
    share = shape.seq * shape.active / shape.experts
    rows = ceil(share)
    into = Matmul(
        rows=rows,
        inner=shape.hidden,
        columns=up * shape.ffn_width,
        repeats=shape.experts,
        computed=share / rows,
        sliced="columns",
    )
    back = into.model_copy(
        update={"inner": shape.ffn_width, "columns": shape.hidden, "sliced": "inner"}
    )
    return into, back
