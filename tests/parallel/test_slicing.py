"""Which layers are sliced, by what the model was seen doing."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from paceline.parallel.forward_trace import trace
from paceline.parallel.slices.slicing import Slicing, find_slicing
from paceline.specs import Layout, PacelineError
from parallel.sliced_models import (
    GPT,
    HEAD,
    KEY_HEADS,
    VOCABULARY,
    WIDTH,
    Biased,
    Encoder,
    Leaky,
    Llama,
    gpt2,
    llama,
    text,
)


def sliced(model: nn.Module, tensor: int = 2, inputs: Any = None, **slices: Any) -> Slicing:
    given = text() if inputs is None else inputs
    model.eval()
    return find_slicing(model, trace(model, lambda: model(given)), Layout(tensor=tensor, **slices))


@pytest.mark.parametrize("split", ["chunk", "split", "view"])
def test_a_decoder_with_fused_queries_keys_and_values(split: str) -> None:
    found = sliced(GPT(split))
    assert found.columns == {
        "blocks.0.attention.qkv": (WIDTH, WIDTH, WIDTH),
        "blocks.0.up": (4 * WIDTH,),
        "blocks.1.attention.qkv": (WIDTH, WIDTH, WIDTH),
        "blocks.1.up": (4 * WIDTH,),
    }
    assert found.rows == {
        "blocks.0.attention.out",
        "blocks.0.down",
        "blocks.1.attention.out",
        "blocks.1.down",
    }
    assert found.head == "head"
    assert found.embeddings == {"embed"}  # not the positions, a small table
    assert found.whole == {}


def test_heads_unfolded_before_the_split_are_one_part() -> None:
    assert sliced(GPT("heads")).columns["blocks.0.attention.qkv"] == (3 * WIDTH,)


def test_a_decoder_with_separate_layers() -> None:
    found = sliced(Llama())
    assert {name for name in found.columns if name.startswith("blocks.0")} == {
        f"blocks.0.{name}" for name in ("query", "key", "value", "gate", "up")
    }
    assert found.columns["blocks.0.key"] == (KEY_HEADS * HEAD,)
    assert found.rows == {f"blocks.{block}.{name}" for block in (0, 1) for name in ("out", "down")}
    assert (found.head, found.embeddings, found.whole) == ("head", frozenset({"embed"}), {})


def test_a_bias_that_comes_to_the_scores_is_no_leak() -> None:
    found = sliced(Biased())
    assert found.columns == {
        "query": (WIDTH,),
        "key": (WIDTH,),
        "value": (WIDTH,),
        "gate": (2 * WIDTH, 2 * WIDTH),
    }
    assert found.rows == {"out", "down"}
    assert found.embeddings == {"embed"}


def test_a_leak_into_the_stream_stays_whole() -> None:
    found = sliced(Leaky())
    assert found.whole == {"mix": "its output is combined with that of embed"}
    assert (found.columns, found.rows) == ({"up": (2 * WIDTH,)}, frozenset({"down"}))


def test_attention_in_one_call_stays_whole_beside_sliced_layers() -> None:
    found = sliced(Encoder())
    assert found.rows == {"layers.layers.0.linear2", "layers.layers.1.linear2"}
    assert "layers.layers.0.self_attn.out_proj" in found.whole


class Halves(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        first, second = value.chunk(2, dim=-1)
        return (first * second)[..., :2]


def test_sizes_that_cannot_be_divided() -> None:
    found = sliced(GPT(), tensor=3)
    assert found.whole["blocks.0.attention.out"] == "its 32 inputs cannot be divided by 3"
    assert found.whole["blocks.0.attention.qkv"] == (
        "blocks.0.attention.out, which uses its output, is not sliced along its inputs"
    )
    assert found.columns == {}
    assert (found.head, found.embeddings) == ("head", frozenset({"embed"}))
    unequal = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), Halves(), nn.Linear(2, 2))
    found = sliced(unequal, inputs=torch.ones(2, 4))
    assert found.whole["0"] == "a part of 3 outputs cannot be divided by 2"


def test_heads_that_cannot_be_divided_leave_their_attention_whole() -> None:
    found = sliced(Llama(), tensor=4)
    assert {name: why for name, why in found.whole.items() if name.startswith("blocks.0")} == {
        "blocks.0.query": "blocks.0.out, which uses its output, is not sliced along its inputs",
        "blocks.0.key": "its 2 heads cannot be divided by 4",
        "blocks.0.value": "its 2 heads cannot be divided by 4",
        "blocks.0.out": "its input comes from blocks.0.key, which is not sliced",
    }
    assert found.rows == {"blocks.0.down", "blocks.1.down"}


def test_a_vocabulary_is_sliced_unevenly_unless_somebody_got_nothing() -> None:
    assert sliced(GPT(vocabulary=193)).head == "head"
    few = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5))
    few.append(nn.LayerNorm(5)).append(nn.Linear(5, 5))
    found = sliced(few, tensor=4, inputs=torch.randint(10, (2, 3)))
    assert found.whole["5"] == "its 5 outputs cannot be divided by 4"
    assert found.embeddings == {"0"}


def chain(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes)))


def test_a_chain_is_taken_in_pairs_and_again_where_a_pair_fails() -> None:
    found = sliced(chain(4, 8, 8, 8, 8), inputs=torch.ones(2, 4))
    assert (found.columns, found.rows) == ({"0": (8,), "2": (8,)}, frozenset({"1", "3"}))
    found = sliced(chain(4, 7, 8, 8, 8), inputs=torch.ones(2, 4))
    assert (found.columns, found.rows, found.head) == ({"1": (8,)}, frozenset({"2"}), "3")
    assert found.whole == {"0": "1, which uses its output, is not sliced along its inputs"}


class Reused(nn.Module):
    def __init__(self, variant: Callable[["Reused"], None]) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        variant(self)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        stream = self.embed(text)
        for _ in range(2):
            stream = stream + self.down(torch.relu(self.up(stream)))
        logits: torch.Tensor = self.head(stream)
        return logits


class Scaled(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_layers_that_are_called_several_times_are_sliced() -> None:
    found = sliced(Reused(lambda model: None))
    assert (found.columns, found.rows) == ({"up": (WIDTH,)}, frozenset({"down"}))


def share_weights(model: Reused) -> None:
    model.down.weight = model.up.weight


def scale(model: Reused) -> None:
    model.up = Scaled(WIDTH, WIDTH)


def normalise(model: Reused) -> None:
    nn.utils.parametrizations.weight_norm(model.up)


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        (share_weights, "it shares a parameter with down"),
        (scale, "its class, Scaled, does more than nn.Linear"),
        (normalise, "its weight is computed from other parameters"),
    ],
)
def test_layers_that_are_more_than_they_seem(
    variant: Callable[[Reused], None], reason: str
) -> None:
    found = sliced(Reused(variant))
    assert found.whole["up"] == reason
    assert found.whole["down"]


def test_a_weight_that_is_tied_to_an_unfit_embedding_keeps_the_head_whole() -> None:
    model = GPT()
    model.embed.max_norm = 1.0
    found = sliced(model)
    assert found.whole == {"head": "it shares its weight with an embedding that cannot be sliced"}
    assert (found.head, found.embeddings) == (None, frozenset())


def test_what_the_user_says_wins() -> None:
    found = sliced(GPT(), slices={"*.up": "whole", "blocks.1.*": "whole", "blocks.1.up": "columns"})
    assert found.columns == {
        "blocks.0.attention.qkv": (WIDTH, WIDTH, WIDTH),
        "blocks.1.up": (4 * WIDTH,),
    }
    assert found.rows == {"blocks.0.attention.out"}
    assert found.whole["blocks.0.up"] == "the layout says so"
    assert found.whole["blocks.0.down"]
    assert sliced(Leaky(), slices={"mix": "columns"}).columns["mix"] == (WIDTH, WIDTH, WIDTH)
    assert sliced(GPT(), slices={"head": "columns"}).head == "head"
    assert sliced(GPT(), slices={"head": "whole"}).embeddings == frozenset()


def test_a_pattern_without_a_layer() -> None:
    with pytest.raises(PacelineError, match="no linear layer has such a name") as error:
        sliced(GPT(), slices={"*.fc": "columns"})
    assert "'*.fc'" in error.value.problem
    assert "blocks.0.attention.qkv" in error.value.fix


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("columns", "its 32 outputs cannot be divided by 3"),
        ("rows", "its 128 inputs cannot be divided by 3"),
    ],
)
def test_what_the_user_says_must_be_possible(to: str, reason: str) -> None:
    with pytest.raises(PacelineError) as error:
        sliced(GPT(), tensor=3, slices={"blocks.0.down": to})
    assert error.value.problem == f"`slices` says {to} for blocks.0.down, but {reason}"


def test_a_head_is_no_row_of_the_layer_before_it() -> None:
    model = nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, 8), nn.Linear(8, VOCABULARY))
    model[2].weight = model[0].weight
    found = sliced(model)
    assert (found.head, found.embeddings, found.rows) == ("2", frozenset({"0"}), frozenset())
    with pytest.raises(PacelineError, match="says rows for 2, but it shares its weight with 0"):
        sliced(model, slices={"2": "rows"})


def test_nothing_to_slice() -> None:
    layers = [nn.Linear(3, 3) for _ in range(7)]
    with pytest.raises(PacelineError) as error:
        sliced(nn.Sequential(*layers), inputs=torch.ones(2, 3), slices={"6": "whole"})
    assert error.value.problem == (
        "tensor=2 was given, but no layer of Sequential can be sliced:\n"
        "    0: 1, which uses its output, is not sliced along its inputs\n"
        "    1: its 3 inputs cannot be divided by 2\n"
        "    2: its 3 inputs cannot be divided by 2\n"
        "    3: its 3 inputs cannot be divided by 2\n"
        "    4: its 3 inputs cannot be divided by 2\n"
        "    and 2 more"
    )
    assert error.value.fix.startswith("leave --tensor out")
    with pytest.raises(PacelineError, match="it has no linear layers"):
        sliced(nn.Sequential(nn.LayerNorm(3)), inputs=torch.ones(2, 3))


def test_hugging_face_models() -> None:
    found = sliced(gpt2())
    assert found.columns["transformer.h.0.attn.c_attn"] == (WIDTH, WIDTH, WIDTH)
    assert found.rows == {
        f"transformer.h.{block}.{name}"
        for block in (0, 1)
        for name in ("attn.c_proj", "mlp.c_proj")
    }
    assert (found.head, found.embeddings) == ("lm_head", frozenset({"transformer.wte"}))
    found = sliced(llama())
    assert len(found.columns) == 10
    assert found.rows == {
        f"model.layers.{block}.{name}"
        for block in (0, 1)
        for name in ("self_attn.o_proj", "mlp.down_proj")
    }
    assert (found.head, found.whole) == ("lm_head", {})
