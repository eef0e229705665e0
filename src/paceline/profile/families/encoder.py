"""Encoder transformers, such as BERT: full attention and masked-token prediction."""

from pydantic import PositiveInt

from paceline.profile.families.transformer import WORD, Transformer, block, logits
from paceline.specs.measurements.profile import LayerCost, Matmul, Profile

TOKEN_TYPES = 2


class Encoder(Transformer):
    """An encoder transformer."""

    seq: PositiveInt
    """Tokens per sample."""
    vocab: PositiveInt


def encoder(shape: Encoder) -> Profile:
    """Return the costs of an encoder, with logits of every token as PyTorch models compute them."""
    return Profile(
        name=f"encoder of {shape.layers} x {shape.hidden}",
        before=_embedding(shape),
        block=block(shape, shape.seq),
        after=_head(shape),
        sequence=shape.seq,
    )


def _embedding(shape: Encoder) -> LayerCost:
    """Return the cost of the embedding: token, position and token type, summed and normalized."""
    elements = shape.seq * shape.hidden
    return LayerCost(
        name="embedding",
        kernels=7,
        parameters=shape.vocab * shape.hidden,
        parameters_whole=elements + (TOKEN_TYPES + 2) * shape.hidden,
        moved_bytes_whole=8 * WORD * elements,
        saved_bytes_whole=WORD * elements + (elements if shape.dropout else 0),
        output_bytes=WORD * elements,
        reductions=1,
    )


def _head(shape: Encoder) -> LayerCost:
    """Return the cost of the head: a layer with its normalization, and the tied output matrix."""
    s, h = shape.seq, shape.hidden
    words = logits(
        "head",
        s,
        h,
        shape.vocab,
        parameters=0,
        parameters_whole=h * h + 3 * h + shape.vocab,
    )
    inner = Matmul(rows=s, inner=h, columns=h, sliced="whole")
    return words.model_copy(
        update={
            "matmuls": (inner, *words.matmuls),
            "kernels": words.kernels + 2,
            "moved_bytes_whole": 4 * WORD * s * h,
            "saved_bytes_whole": words.saved_bytes_whole + 2 * WORD * s * h,
        }
    )
