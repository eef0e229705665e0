"""Decoder transformers, as GPT and Llama."""

from pydantic import PositiveInt, model_validator

from paceline.profile.families.transformer import WORD, Transformer, block, logits
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.profile import LayerCost, Profile

LLAMA_MULTIPLE = 256


class Decoder(Transformer):
    """A decoder transformer."""

    seq: PositiveInt
    """Tokens in a sample."""
    vocab: PositiveInt
    kv_heads: PositiveInt | None = None
    """Heads of keys and values; as many as `heads` where unset."""
    gated: bool = False
    """An MLP of three matrices, as in Llama."""
    tied: bool = True
    """The embedding is also the matrix of the output."""
    positions: bool = True
    """Learned positions, with parameters."""

    @model_validator(mode="after")
    def _check_kv_heads(self) -> "Decoder":
        if self.kv_heads and self.heads % self.kv_heads:
            raise PacelineError(
                f"heads={self.heads} is not divided by kv_heads={self.kv_heads}",
                fix="give a divisor of the heads",
            )
        return self


class Llama(Decoder):
    """A decoder as Llama: gated, with an output matrix of its own, positions without parameters."""

    gated: bool = True
    tied: bool = False
    positions: bool = False

    @property
    def ffn_width(self) -> int:
        """Where unset, two thirds of 4 × hidden, rounded up (Llama 2's code, multiple_of=256)."""
        return self.ffn or -(-(8 * self.hidden // 3) // LLAMA_MULTIPLE) * LLAMA_MULTIPLE


def decoder(shape: Decoder) -> Profile:
    """The costs of a decoder transformer."""
    return Profile(
        name=f"decoder of {shape.layers} x {shape.hidden}",
        before=embedding(shape),
        block=decoder_block(shape),
        after=head(shape),
    )


def embedding(shape: Decoder) -> LayerCost:
    """Of tokens, and of positions where they are learned."""
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
    """Attention to what came before, and an MLP."""
    return block(shape, shape.seq, kv_heads=shape.kv_heads, gated=shape.gated, causal=True)


def head(shape: Decoder) -> LayerCost:
    """The next token at every place."""
    return logits(
        "head",
        shape.seq,
        shape.hidden,
        shape.vocab,
        parameters=0 if shape.tied else shape.vocab * shape.hidden,
        parameters_whole=(1 if shape.gated else 2) * shape.hidden,
    )
