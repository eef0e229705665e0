"""Decoder transformers, such as GPT and Llama."""

from pydantic import PositiveInt, model_validator

from paceline.profile.families.transformer import WORD, Transformer, block, logits
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.profile import LayerCost, Profile

LLAMA_MULTIPLE = 256


class Decoder(Transformer):
    """A decoder transformer."""

    seq: PositiveInt
    """Tokens per sample."""
    vocab: PositiveInt
    kv_heads: PositiveInt | None = None
    """Key and value heads; None: as many as `heads`."""
    gated: bool = False
    """Whether the MLP has three matrices, as in Llama."""
    tied: bool = True
    """Whether the embedding is also the output matrix."""
    positions: bool = True
    """Whether positions are learned, with parameters."""
    window: PositiveInt | None = None
    """Tokens that every second block looks back at, with fused attention; None: all, as the
    others."""

    @model_validator(mode="after")
    def _check_kv_heads(self) -> "Decoder":
        if self.kv_heads and self.heads % self.kv_heads:
            raise PacelineError(
                f"heads={self.heads} is not divided by kv_heads={self.kv_heads}",
                fix="give a divisor of the heads",
            )
        return self


class Llama(Decoder):
    """A decoder such as Llama: gated, with its own output matrix and positions without
    parameters."""

    gated: bool = True
    tied: bool = False
    positions: bool = False

    @property
    def ffn_width(self) -> int:
        """If unset, two thirds of 4 × hidden, rounded up (Llama 2's code, multiple_of=256)."""
        return self.ffn or -(-(8 * self.hidden // 3) // LLAMA_MULTIPLE) * LLAMA_MULTIPLE


def decoder(shape: Decoder) -> Profile:
    """Return the costs of a decoder transformer."""
    return Profile(
        name=f"decoder of {shape.layers} x {shape.hidden}",
        before=embedding(shape),
        block=decoder_block(shape),
        after=head(shape),
        sequence=shape.seq,
    )


def embedding(shape: Decoder) -> LayerCost:
    """Return the cost of the embedding of tokens and of learned positions."""
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


def decoder_block(shape: Decoder) -> LayerCost:
    """Return the cost of a block: causal attention and an MLP."""
    whole = block(shape, shape.seq, kv_heads=shape.kv_heads, gated=shape.gated, causal=True)
    if shape.window is None or shape.window >= shape.seq or shape.attention == "whole":
        return whole
    seen = 0.25 + 0.5 * shape.window / shape.seq
    products = (
        each.model_copy(update={"computed": min(seen, each.computed)}) if each.attention else each
        for each in whole.matmuls
    )
    return whole.model_copy(update={"matmuls": tuple(products)})


def head(shape: Decoder) -> LayerCost:
    """Return the cost of next-token prediction at every position."""
    return logits(
        "head",
        shape.seq,
        shape.hidden,
        shape.vocab,
        parameters=0 if shape.tied else shape.vocab * shape.hidden,
        parameters_whole=(1 if shape.gated else 2) * shape.hidden,
    )
