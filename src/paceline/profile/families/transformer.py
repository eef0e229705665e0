"""Common parts of transformers: their dimensions, and the attention and MLP of one block."""

from typing import Literal

from pydantic import PositiveInt, model_validator

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.profile import LayerCost, Matmul

WORD = 2
"""Bytes of an activation: planned trainings compute in 16 bits."""


class Transformer(Spec):
    """Equal blocks of attention and MLP."""

    layers: PositiveInt
    hidden: PositiveInt
    heads: PositiveInt
    ffn: PositiveInt | None = None
    """Width of the MLP; None: four times `hidden`."""
    attention: Literal["fused", "whole"] = "fused"
    """`fused`: scores are never written to memory, and masked ones are not computed
    (FlashAttention). `whole`: scores of all pairs are written and kept."""
    dropout: bool = False

    @model_validator(mode="after")
    def _check_heads(self) -> "Transformer":
        if self.hidden % self.heads:
            raise PacelineError(
                f"a width of {self.hidden} is not divided by heads={self.heads}",
                fix="give a width that is a multiple of the heads",
            )
        return self

    @property
    def ffn_width(self) -> int:
        """Width of the MLP's inner activations."""
        return self.ffn or 4 * self.hidden


def block(
    shape: Transformer,
    tokens: int,
    *,
    kv_heads: int | None = None,
    gated: bool = False,
    causal: bool = False,
) -> LayerCost:
    """Return the cost of attention and MLP; saved bytes as Korthikanti et al. 2022 count them,
    s·h(10 + 24/t) and 5·a·s²/t for GPT with dropout."""
    s, h, f = tokens, shape.hidden, shape.ffn_width
    kv = h // shape.heads * (kv_heads or shape.heads)
    up = 2 if gated else 1
    scores = shape.heads * s * s
    whole = shape.attention == "whole"
    biases_and_norms = 2 * h if gated else f + 3 * h + 2 * kv + 4 * h
    return LayerCost(
        name="block",
        count=shape.layers,
        repeated=True,
        matmuls=(
            Matmul(rows=s, inner=h, columns=h + 2 * kv, sliced="columns"),
            *_attention(shape, tokens, causal),
            Matmul(rows=s, inner=h, columns=h, sliced="inner"),
            Matmul(rows=s, inner=h, columns=up * f, sliced="columns"),
            Matmul(rows=s, inner=f, columns=h, sliced="inner"),
        ),
        kernels=40 if whole else 25,
        parameters=h * (2 * h + 2 * kv) + (up + 1) * h * f,
        parameters_whole=biases_and_norms,
        moved_bytes=WORD * s * ((up + 1) * f + 2 * (h + kv)),
        moved_bytes_whole=WORD * s * h * (14 if shape.dropout else 10),
        moved_bytes_attention=((4 if shape.dropout else 2) * WORD + 1) * scores if whole else 0,
        saved_bytes=WORD * s * (h + 2 * kv + h + (up + 1) * f),
        saved_bytes_whole=s * h * (4 * WORD + (2 if shape.dropout else 0)),
        saved_bytes_attention=(5 if shape.dropout else 2) * scores if whole else 0,
        product_bytes=WORD * s * (h + 2 * kv + h + up * f),
        product_bytes_whole=3 * WORD * s * h,
        output_bytes=WORD * s * h,
        reductions=2,
    )


def _attention(shape: Transformer, tokens: int, causal: bool) -> tuple[Matmul, Matmul]:
    width = shape.hidden // shape.heads
    left_out = causal and shape.attention == "fused"
    scores = Matmul(
        rows=tokens,
        inner=width,
        columns=tokens,
        repeats=shape.heads,
        each_sample=True,
        computed=0.5 if left_out else 1.0,
        sliced="repeats",
        attention=True,
    )
    values = scores.model_copy(update={"inner": tokens, "columns": width})
    return scores, values


def logits(
    name: str,
    tokens: int,
    hidden: int,
    vocab: int,
    *,
    parameters: int,
    parameters_whole: int,
) -> LayerCost:
    """Return the cost of normalization, logits and loss. Logits are kept in 16 bits, in fp32,
    and as gradients."""
    return LayerCost(
        name=name,
        matmuls=(Matmul(rows=tokens, inner=hidden, columns=vocab, sliced="columns"),),
        kernels=10,
        parameters=parameters,
        parameters_whole=parameters_whole,
        moved_bytes=(WORD + 4 * 4) * tokens * vocab,
        saved_bytes=(WORD + 4 + 4) * tokens * vocab,
        saved_bytes_whole=2 * WORD * tokens * hidden,
        output_bytes=WORD * tokens * hidden,
    )
