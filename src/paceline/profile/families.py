"""Models given by their dimensions only, for planning what does not exist yet: arithmetic."""

from typing import Literal

from pydantic import PositiveInt, model_validator

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError
from paceline.specs.profile import LayerCost, Matmul, Profile

WORD = 2
"""Bytes of an activation: planned trainings compute in 16 bits."""


class Decoder(Spec):
    """A decoder transformer."""

    layers: PositiveInt
    hidden: PositiveInt
    heads: PositiveInt
    seq: PositiveInt
    """Tokens in a sample."""
    vocab: PositiveInt
    ffn: PositiveInt | None = None
    """Width of the MLP; four times `hidden` where unset."""
    kv_heads: PositiveInt | None = None
    """Heads of keys and values; as many as `heads` where unset."""
    gated: bool = False
    """An MLP of three matrices, as in Llama."""
    tied: bool = True
    """The embedding is also the matrix of the output."""
    positions: bool = True
    """Learned positions, with parameters."""
    attention: Literal["fused", "whole"] = "fused"
    """Fused: scores are never written to memory and masked ones not computed (FlashAttention).
    Whole: scores of all pairs are written and kept."""
    dropout: bool = False

    @model_validator(mode="after")
    def _check(self) -> "Decoder":
        if self.hidden % self.heads:
            raise PacelineError(
                f"hidden={self.hidden} is not divided by heads={self.heads}",
                fix="give a multiple of the heads",
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise PacelineError(
                f"heads={self.heads} is not divided by kv_heads={self.kv_heads}",
                fix="give a divisor of the heads",
            )
        return self

    @property
    def kv_width(self) -> int:
        """Of keys, and of values."""
        return self.hidden // self.heads * (self.kv_heads or self.heads)

    @property
    def ffn_width(self) -> int:
        """Of the MLP's inner activations."""
        return self.ffn or 4 * self.hidden


def decoder(shape: Decoder) -> Profile:
    """The costs of a decoder transformer."""
    return Profile(
        name=f"decoder of {shape.layers} x {shape.hidden}",
        before=_embedding(shape),
        block=_block(shape),
        after=_head(shape),
    )


def _embedding(shape: Decoder) -> LayerCost:
    activations = WORD * shape.seq * shape.hidden
    return LayerCost(
        name="embedding",
        kernels=3,
        parameters=shape.vocab * shape.hidden,
        parameters_whole=shape.seq * shape.hidden if shape.positions else 0,
        moved_bytes_whole=3 * activations,
        saved_bytes_whole=shape.seq * shape.hidden if shape.dropout else 0,
        output_bytes=activations,
        reductions=1,
    )


def _head(shape: Decoder) -> LayerCost:
    """Normalisation, logits and loss. Logits are kept in 16 bits, in fp32, and as gradients."""
    logits = shape.seq * shape.vocab
    return LayerCost(
        name="head",
        matmuls=(
            Matmul(rows=shape.seq, inner=shape.hidden, columns=shape.vocab, sliced="columns"),
        ),
        kernels=10,
        parameters=0 if shape.tied else shape.vocab * shape.hidden,
        parameters_whole=2 * shape.hidden,
        moved_bytes=(WORD + 4 * 4) * logits,
        saved_bytes=(WORD + 4 + 4) * logits,
        saved_bytes_whole=2 * WORD * shape.seq * shape.hidden,
        output_bytes=WORD * shape.seq * shape.hidden,
    )


def _block(shape: Decoder) -> LayerCost:
    """Attention and MLP; saved bytes as Korthikanti et al. 2022 count them, s·h(10 + 24/t) and
    5·a·s²/t for GPT with dropout."""
    s, h, f, kv = shape.seq, shape.hidden, shape.ffn_width, shape.kv_width
    up = 2 if shape.gated else 1
    scores = shape.heads * s * s
    whole = shape.attention == "whole"
    return LayerCost(
        name="block",
        count=shape.layers,
        repeated=True,
        matmuls=(
            Matmul(rows=s, inner=h, columns=h + 2 * kv, sliced="columns"),
            *_attention(shape),
            Matmul(rows=s, inner=h, columns=h, sliced="inner"),
            Matmul(rows=s, inner=h, columns=up * f, sliced="columns"),
            Matmul(rows=s, inner=f, columns=h, sliced="inner"),
        ),
        kernels=40 if whole else 25,
        parameters=h * (2 * h + 2 * kv) + (up + 1) * h * f,
        parameters_whole=2 * h if shape.gated else 9 * h + 4 * h,
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


def _attention(shape: Decoder) -> tuple[Matmul, Matmul]:
    width = shape.hidden // shape.heads
    computed = 1.0 if shape.attention == "whole" else 0.5
    scores = Matmul(
        rows=shape.seq,
        inner=width,
        columns=shape.seq,
        repeats=shape.heads,
        each_sample=True,
        computed=computed,
        sliced="repeats",
        attention=True,
    )
    values = scores.model_copy(update={"inner": shape.seq, "columns": width})
    return scores, values
