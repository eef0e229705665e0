"""Mixture-of-experts decoders, such as Mixtral and DeepSeek: a router selects experts for every
token.

Paceline has no expert parallelism: expert weights are sharded, or sliced like those of any MLP.
"""

from math import ceil

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from paceline.profile.families.decoder import Llama, decoder_block, embedding, head
from paceline.profile.families.transformer import WORD, Projections
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.profile import LayerCost, Matmul, Profile

SCORE = 4
"""Bytes of a router score for one expert: fp32."""


class Experts(Llama):
    """A decoder with experts; the defaults are those of Llama."""

    experts: PositiveInt
    active: PositiveInt
    """Experts per token."""
    expert_ffn: PositiveInt | None = None
    """Width of an expert; None: `ffn`."""
    shared: NonNegativeInt = 0
    """Experts of the same width that process every token."""
    dense: NonNegativeInt = 0
    """Blocks with an MLP of width `ffn` instead of experts."""
    capacity: float | None = Field(default=None, gt=0, le=100)
    """Tokens of an expert relative to the mean: it drops those beyond and pads up to them. None:
    an expert processes all of its tokens."""
    query_latent: PositiveInt | None = None
    """Width of the vector from which queries are made; None: the hidden state itself."""
    key_latent: PositiveInt | None = None
    """Width of the vector from which keys and values are made (DeepSeek); None: the hidden
    state."""
    rotary: NonNegativeInt = 0
    """With `key_latent`: elements of a head's queries and keys for the position, beside `head`."""

    @model_validator(mode="after")
    def _check_active(self) -> "Experts":
        if self.active > self.experts:
            raise PacelineError(
                f"active={self.active} is more than experts={self.experts}",
                fix="give at most as many active experts as there are",
            )
        if self.dense >= self.layers:
            raise PacelineError(
                f"dense={self.dense} leaves no block of layers={self.layers} for experts",
                fix="give fewer dense blocks than layers, or plan a model without experts",
            )
        return self

    @property
    def expert_width(self) -> int:
        """Width of an expert's inner activations."""
        return self.expert_ffn or self.ffn_width

    def projections(self, tokens: int, kv_heads: int) -> Projections:
        """Return the products around attention; with `key_latent`, keys and values of all heads are
        made from one vector (multi-head latent attention)."""
        if self.key_latent is None:
            return super().projections(tokens, kv_heads)
        h, width = self.hidden, self.head_width
        latent, from_queries = self.key_latent, self.query_latent or h
        queries, values = self.heads * (width + self.rotary), self.heads * width
        whole = [(h, latent + self.rotary), *([(h, from_queries)] if self.query_latent else [])]
        sliced = [(from_queries, queries), (latent, 2 * values)]
        into = (
            *(Matmul(rows=tokens, inner=i, columns=c, sliced="whole") for i, c in whole),
            *(Matmul(rows=tokens, inner=i, columns=c, sliced="columns") for i, c in sliced),
        )
        return Projections(
            into=into,
            out=Matmul(rows=tokens, inner=values, columns=h, sliced="inner"),
            parameters=sum(each.inner * each.columns for each in into) + values * h,
            queries=queries,
            keys_and_values=queries + values,
            score_width=width + self.rotary,
            latents=latent + self.rotary + (self.query_latent or 0),
        )


def experts(shape: Experts) -> Profile:
    """Return the costs of a decoder whose experts get equally many tokens."""
    return Profile(
        name=f"decoder of {shape.layers} x {shape.hidden} with {shape.experts} experts",
        before=embedding(shape),
        block=_block(shape),
        after=head(shape),
        sequence=shape.seq,
    )


def _block(shape: Experts) -> LayerCost:
    """Return the cost of a block whose MLP processes every token once per active expert: the mean
    of all blocks if some have none.

    Tokens are sorted by expert, so that one launch computes a product of all experts.
    """
    dense = decoder_block(shape)
    s, h, f, number = shape.seq, shape.hidden, shape.expert_width, shape.experts
    up = 2 if shape.gated else 1
    part = 1.0 - shape.dense / shape.layers
    copies = part * s * shape.active
    # Inner activations of all experts beyond those of the MLP that every block had.
    inner = part * (s * (shape.active + shape.shared) * f - s * shape.ffn_width)
    own = round(part * number * (up + 1) * h * f)
    others = round(part * (up + 1) * h * (shape.shared * f - shape.ffn_width))
    biases = 0 if shape.gated else round(part * (number - 1) * (f + h))
    return dense.model_copy(
        update={
            "matmuls": (*dense.matmuls[:-2], *_products(shape, dense, up, part)),
            "kernels": dense.kernels + 12,
            "parameters": dense.parameters + others + own,
            "parameters_experts": own,
            "parameters_whole": dense.parameters_whole + round(part * h * number) + biases,
            "moved_bytes": dense.moved_bytes + WORD * inner * (up + 1),
            # Tokens to the experts and back, read and written; router scores, softmax and sorting.
            "moved_bytes_whole": dense.moved_bytes_whole
            + 4 * WORD * copies * h
            + part * 6 * SCORE * s * number,
            "saved_bytes": dense.saved_bytes + WORD * inner * (up + 1),
            # Inputs of the experts, and their outputs before weighting.
            "saved_bytes_whole": dense.saved_bytes_whole
            + 2 * WORD * copies * h
            + part * SCORE * s * number,
            "product_bytes": dense.product_bytes + WORD * inner * up,
            "product_bytes_whole": dense.product_bytes_whole
            + WORD * (copies - part * s) * h
            + part * WORD * s * number,
            "routed_bytes": WORD * copies * h * (shape.capacity or 1.0),
        }
    )


def _products(shape: Experts, dense: LayerCost, up: int, part: float) -> tuple[Matmul, ...]:
    """Return the router, the experts, the shared ones, and the MLP of blocks without experts."""
    share = shape.seq * shape.active / shape.experts * (shape.capacity or 1.0)
    rows = ceil(share)
    into = Matmul(
        rows=rows,
        inner=shape.hidden,
        columns=up * shape.expert_width,
        repeats=shape.experts,
        count=part,
        computed=share / rows,
        sliced="columns",
        routed=True,
    )
    back = into.model_copy(
        update={"inner": shape.expert_width, "columns": shape.hidden, "sliced": "inner"}
    )
    router = Matmul(
        rows=shape.seq, inner=shape.hidden, columns=shape.experts, count=part, sliced="whole"
    )
    found = [router, into, back]
    wide = shape.shared * shape.expert_width
    if wide:
        found += [
            into.model_copy(update={"columns": up * wide, **_EVERY, "rows": shape.seq}),
            back.model_copy(update={"inner": wide, **_EVERY, "rows": shape.seq}),
        ]
    if shape.dense:
        mean = {"count": 1.0 - part}
        found += [each.model_copy(update=mean) for each in dense.matmuls[-2:]]
    return tuple(found)


_EVERY = {"repeats": 1, "computed": 1.0, "routed": False}
