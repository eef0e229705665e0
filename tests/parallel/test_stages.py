"""Cutting a model into stages: where, what each holds, and that the stages compute the model."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from layouts.models import EncoderDecoder, TiedGPT
from paceline.parallel.forward_trace import trace
from paceline.parallel.pipeline.stages import Cut, Stage, balanced, cut, let_go
from paceline.parallel.trial import Reference, refuse_layout
from paceline.specs import PacelineError

WIDTH = 8


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 8))
def test_no_other_cut_has_a_cheaper_dearest_stage(costs: list[int], parts: int) -> None:
    parts = min(parts, len(costs))

    def dearest(begins: tuple[int, ...]) -> int:
        edges = [0, *begins, len(costs)]
        return max(sum(costs[begin:end]) for begin, end in itertools.pairwise(edges))

    first, *begins = balanced(costs, parts)
    assert first == 0
    assert len(set(begins)) == parts - 1
    every = itertools.combinations(range(1, len(costs)), parts - 1)
    assert dearest(tuple(begins)) == min(map(dearest, every))


class Layer(nn.Module):
    """A block that may look at a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, stream: torch.Tensor, memory: torch.Tensor | None = None) -> Any:
        mixed = self.linear(self.norm(stream)).tanh()
        return stream + (mixed if memory is None else mixed * memory)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Layer() for _ in range(4))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        stream = self.embed(values)
        for block in self.blocks:
            stream = block(stream)
        out: torch.Tensor = self.head(stream)
        return out


class WithMemory(Blocks):
    """Every block is handed a value that was computed before the first of them."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        memory = self.head(values)
        stream: torch.Tensor = self.embed(values)
        for block in self.blocks:
            stream = block(stream, memory=memory)
        return stream


class WithPosition(Blocks):
    """Parameters of the model itself, used before the blocks and after them."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(WIDTH))
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = super().forward(values + self.position) * self.scale
        return out


class WithUnknownReturn(Blocks):
    """Blocks that return more than the stream, as Hugging Face's do."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Pair() for _ in range(4))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        stream = self.embed(values)
        for block in self.blocks:
            stream, note = block(stream)
            assert note == "done"
        out: torch.Tensor = self.head(stream)
        return out


class Pair(Layer):
    def forward(self, stream: torch.Tensor, memory: torch.Tensor | None = None) -> Any:
        return super().forward(stream, memory), "done"


class WithBypass(Blocks):
    """The first layer's result is used again behind all blocks, which no block hands on."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        first = stream = self.embed(values)
        for block in self.blocks:
            stream = block(stream)
        out: torch.Tensor = self.head(stream + first)
        return out


class Frozen(Blocks):
    def __init__(self) -> None:
        super().__init__()
        self.embed.requires_grad_(False)
        self.blocks[0].requires_grad_(False)


class Looping(Blocks):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return super().forward(super().forward(values))


def numbers(samples: int) -> tuple[Any, ...]:
    return (torch.randn(samples, WIDTH, generator=torch.Generator().manual_seed(0)),)


def text(samples: int) -> tuple[Any, ...]:
    return (torch.randint(32, (samples, 8), generator=torch.Generator().manual_seed(0)),)


def cut_of(model: nn.Module, inputs: Callable[[int], Any], stages: int) -> Cut:
    few = trace(model, lambda: model(*inputs(2)))
    more = trace(model, lambda: model(*inputs(3)))
    return cut(model, few, more, stages)


def checked_in_stages(model: nn.Module, inputs: Callable[[int], Any], stages: int) -> Cut:
    """Cut, compare loss and gradients with the whole model's, then with stages of their own."""
    found = cut_of(model, inputs, stages)
    given_inputs = inputs(2)
    target = torch.zeros_like(model(*given_inputs))

    def loss() -> torch.Tensor:
        return F.mse_loss(model(*given_inputs), target)

    reference = Reference.of(model, loss, lambda name, whole: whole)
    stage = Stage(model, found.few)
    stage.work = lambda model, is_last: model(*given_inputs)

    def chained() -> torch.Tensor:
        sent: Any = ()
        for number in range(stages):
            stage.hold(found.span(number))
            sent = stage(*sent)
            if number + 1 < stages:
                forms = found.arguments(number + 1, 2)
                assert [each.shape for each in sent] == [form.shape for form in forms]
                assert [each.requires_grad for each in sent] == [
                    form.requires_grad for form in forms
                ]
        return F.mse_loss(sent, target)

    if differ := reference.differences(model, chained):
        refuse_layout(model, differ, how=f"cut into {stages} stages")
    return found


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize(
    "model", [Blocks, WithMemory, WithPosition, WithUnknownReturn, Frozen], ids=lambda m: m.__name__
)
def test_stages_compute_the_model(model: type[nn.Module], stages: int) -> None:
    torch.manual_seed(0)
    found = checked_in_stages(model(), numbers, stages)
    assert len(found.first_blocks) == stages


def test_a_tied_weight_belongs_to_both_ends() -> None:
    found = checked_in_stages(TiedGPT(), text, 3)
    assert found.owners["embed.weight"] == {0, 2}
    assert {name for name, of in found.owners.items() if len(of) > 1} == {"embed.weight"}


def test_both_rows_of_an_encoder_decoder_are_cut() -> None:
    model = EncoderDecoder()
    found = checked_in_stages(model, lambda samples: text(samples) * 2, 2)
    assert [found.few[first].name for first in found.first_blocks] == ["encoder.0", "decoder.0"]
    # Embedding the decoder's input stands before the cut, the head behind it.
    assert found.owners["embed.weight"] == {0}
    assert found.owners["head.weight"] == {1}


def test_parameters_outside_of_layers_find_their_stage() -> None:
    found = checked_in_stages(WithPosition(), numbers, 2)
    assert found.owners["position"] == {0}
    assert found.owners["scale"] == {1}


def test_shapes_follow_the_number_of_samples() -> None:
    found = cut_of(TiedGPT(), text, 2)
    (stream,) = found.arguments(1, 7)
    assert stream.shape == (7, 8, 16)
    assert found.arguments(0, 7) == ()


def test_parameters_of_other_stages_take_no_memory() -> None:
    model = TiedGPT()
    found = cut_of(model, text, 2)
    others = [name for name, of in found.owners.items() if 1 not in of]
    let_go(model, others)
    held = dict(model.named_parameters())
    assert set(held) == {name for name, of in found.owners.items() if 1 in of}
    gone: Any = model.get_submodule("blocks.0.mix")
    assert gone.weight.shape == (48, 16)
    assert gone.weight.untyped_storage().nbytes() == 4


def test_a_value_that_passes_beside_the_blocks_is_refused() -> None:
    torch.manual_seed(0)
    with pytest.raises(PacelineError, match="WithBypass computes different results when it is cut"):
        checked_in_stages(WithBypass(), numbers, 2)


def test_more_stages_than_blocks() -> None:
    with pytest.raises(
        PacelineError, match="5 pipeline stages need as many blocks, but Blocks has 4"
    ):
        cut_of(Blocks(), numbers, 5)


def test_a_block_that_is_called_twice() -> None:
    with pytest.raises(PacelineError, match=r"Looping calls its block blocks\.0 several times"):
        cut_of(Looping(), numbers, 2)
