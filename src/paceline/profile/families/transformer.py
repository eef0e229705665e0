"""Common parts of transformers: their dimensions, and the attention and MLP of one block."""

from dataclasses import dataclass
from typing import Literal

from pydantic import PositiveInt, model_validator

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.profile import LayerCost, Matmul

WORD = 2
"""Bytes of an activation: planned trainings compute in 16 bits."""


@dataclass(frozen=True)
class Projections:
    """The products that make queries, keys and values, and the one behind attention; widths are
    elements of a token."""

    into: tuple[Matmul, ...]
    out: Matmul
    parameters: int
    queries: int
    keys_and_values: int
    score_width: int
    """Width of a head's queries and keys."""
    latents: int = 0
    """Smaller vectors from which queries, keys and values are made."""


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
    head: PositiveInt | None = None
    """Width of a head; None: `hidden` divided by `heads`."""

    @model_validator(mode="after")
    def _check_heads(self) -> "Transformer":
        if self.head is None and self.hidden % self.heads:
            raise PacelineError(
                f"a width of {self.hidden} is not divided by heads={self.heads}",
                fix="give a width that is a multiple of the heads",
            )
        return self

    @property
    def ffn_width(self) -> int:
        """Width of the MLP's inner activations."""
        return self.ffn or 4 * self.hidden

    @property
    def head_width(self) -> int:
        """Width of a head's values."""
        return self.head or self.hidden // self.heads

    def projections(self, tokens: int, kv_heads: int) -> Projections:
        """Return the products around the core of attention."""
        queries, keys = self.heads * self.head_width, kv_heads * self.head_width
        into = Matmul(rows=tokens, inner=self.hidden, columns=queries + 2 * keys, sliced="columns")
        return Projections(
            into=(into,),
            out=Matmul(rows=tokens, inner=queries, columns=self.hidden, sliced="inner"),
            parameters=self.hidden * (2 * queries + 2 * keys),
            queries=queries,
            keys_and_values=2 * keys,
            score_width=self.head_width,
        )


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
    around = shape.projections(tokens, kv_heads or shape.heads)
    made, seen = around.queries + around.keys_and_values, shape.heads * shape.head_width
    up = 2 if gated else 1
    scores = shape.heads * s * s
    whole = shape.attention == "whole"
    biases_and_norms = 2 * h if gated else f + 2 * h + made + 4 * h
    return LayerCost(
        name="block",
        count=shape.layers,
        repeated=True,
        matmuls=(
            *around.into,
            *_attention(shape, tokens, causal, around.score_width, kv_heads or shape.heads),
            around.out,
            Matmul(rows=s, inner=h, columns=up * f, sliced="columns"),
            Matmul(rows=s, inner=f, columns=h, sliced="inner"),
        ),
        kernels=40 if whole else 25,
        parameters=around.parameters + (up + 1) * h * f,
        parameters_whole=biases_and_norms,
        moved_bytes=WORD * s * ((up + 1) * f + made + seen),
        moved_bytes_whole=WORD * s * (h * (14 if shape.dropout else 10) + 2 * around.latents),
        moved_bytes_attention=((4 if shape.dropout else 2) * WORD + 1) * scores if whole else 0,
        saved_bytes=WORD * s * (made + seen + (up + 1) * f),
        saved_bytes_whole=s * h * (4 * WORD + (2 if shape.dropout else 0))
        + 2 * WORD * s * around.latents,
        saved_bytes_attention=(5 if shape.dropout else 2) * scores if whole else 0,
        product_bytes=WORD * s * (made + seen + up * f),
        product_bytes_whole=WORD * s * (3 * h + around.latents),
        output_bytes=WORD * s * h,
        reductions=2,
        context_bytes=0 if whole else WORD * s * around.keys_and_values,
    )


def _attention(
    shape: Transformer, tokens: int, causal: bool, score_width: int, kv_heads: int
) -> tuple[Matmul, Matmul]:
    left_out = causal and shape.attention == "fused"
    scores = Matmul(
        rows=tokens,
        inner=score_width,
        columns=tokens,
        repeats=shape.heads,
        each_sample=True,
        computed=0.5 if left_out else 1.0,
        sliced="repeats",
        attention=True,
        queries_per_key=shape.heads // kv_heads,
    )
    values = scores.model_copy(update={"inner": tokens, "columns": shape.head_width})
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
