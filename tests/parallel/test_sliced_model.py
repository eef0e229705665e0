"""Sliced models compute what whole ones do, on real ranks."""

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from paceline.parallel.slices.sliced_model import Cut
from parallel.sliced_models import (
    GPT,
    LENGTH,
    WIDTH,
    Biased,
    Encoder,
    GPTBlock,
    Leaky,
    Llama,
    gpt2,
    llama,
    next_word,
    text,
)
from parallel.sliced_ranks import Collectives, Loss, built, compared, difference, sliced, workers
from ranks import run_ranks

pytestmark = pytest.mark.slow


def of_classes(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, target[:, 0])


def by_positions(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    some = target.masked_fill(target % 3 == 0, -100)
    return F.cross_entropy(logits.transpose(1, 2), some)


def smoothed(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=0.1)


def by_hand(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    chosen = logits.log_softmax(dim=-1).gather(-1, target.unsqueeze(-1))
    return -chosen.mean() + 1e-3 * logits.logsumexp(dim=-1).square().mean()


def of_each(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    each = F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), reduction="none")
    return each.square().mean()


def squares(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(logits, F.one_hot(target, logits.shape[-1]).float())


CASES: dict[str, tuple[Callable[[], nn.Module], Loss, dict[str, str]]] = {
    "fused by chunk, tied": (GPT, next_word, {}),
    "fused by split, untied": (functools.partial(GPT, "split", tied=False), by_positions, {}),
    "fused by view, pooled": (functools.partial(GPT, "view", pooled=True), of_classes, {}),
    "fused by heads": (functools.partial(GPT, "heads"), smoothed, {}),
    "a mask": (functools.partial(GPT, mask="boolean"), by_hand, {}),
    "a mask of heads": (functools.partial(GPT, "view", mask="of heads"), of_each, {}),
    "an odd vocabulary": (functools.partial(GPT, vocabulary=193), next_word, {}),
    "an odd vocabulary, by hand": (functools.partial(GPT, vocabulary=195), squares, {}),
    "separate, norms of heads": (Llama, next_word, {}),
    "a learnt bias": (Biased, next_word, {}),
    "a leak": (Leaky, next_word, {}),
    "a leak, told": (Leaky, next_word, {"mix": "columns"}),
    "rows alone": (GPT, next_word, {"*.up": "whole", "*.down": "rows"}),
    "columns alone": (GPT, next_word, {"*.up": "columns", "*.down": "whole", "*.out": "columns"}),
    "PyTorch's own encoder": (Encoder, next_word, {}),
}


def compare_all(sequence: bool) -> dict[str, float]:
    with workers() as mesh:
        return {
            name: compared(make, loss, mesh, sequence=sequence, slices=told)
            for name, (make, loss, told) in CASES.items()
        }


@pytest.mark.parametrize("sequence", [False, True], ids=["", "sequence"])
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_loss_and_gradients_are_those_of_the_whole_model(
    ranks: int, sequence: bool, tmp_path: Path
) -> None:
    for found in run_ranks(compare_all, ranks, tmp_path, sequence, seconds=100):
        assert {name: far for name, far in found.items() if far > 1e-5} == {}


class Logits(nn.Module):
    """A model of Hugging Face that returns its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        # With labels the model computes a loss of its own, too, from logits in slices.
        output = self.model(input_ids=text, labels=text)
        logits: torch.Tensor = output.logits * output.loss
        return logits


def compare_hugging_face() -> dict[str, float]:
    with workers() as mesh:
        return {
            f"{make.__name__}, {attention}, {sequence}": compared(
                lambda make=make, attention=attention: Logits(make(attention)),  # type: ignore[misc]
                next_word,
                mesh,
                sequence=sequence,
            )
            for make in (gpt2, llama)
            for attention in ("eager", "sdpa")
            for sequence in (False, True)
        }


def test_models_of_hugging_face(tmp_path: Path) -> None:
    for found in run_ranks(compare_hugging_face, 2, tmp_path, seconds=100):
        assert {name: far for name, far in found.items() if far > 1e-5} == {}


def half_precision(sequence: bool) -> dict[str, Any]:
    with workers() as mesh:
        whole, model = built(Llama), built(Llama)
        part = sliced(model, mesh, sequence=sequence)
        dtypes: dict[nn.Module, list[torch.dtype]] = {whole: [], model: []}
        for each, seen in dtypes.items():
            for name in ("blocks.0", "blocks.0.out", "blocks.1.down", "head"):
                hook = functools.partial(lambda seen, _, __, out: seen.append(out.dtype), seen)
                each.get_submodule(name).register_forward_hook(hook)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = next_word(whole(text()), text(2))
            with part.computing():
                loss = next_word(model(text()), text(2))
        torch.autograd.backward(expected)
        with part.computing():
            torch.autograd.backward(loss)
        found: dict[str, Any] = {"same dtypes": dtypes[whole] == dtypes[model]}
        found["loss"], found["gradients"] = difference(loss, expected), 0.0
        gradients = {name: each.grad for name, each in model.named_parameters()}
        for name, parameter in whole.named_parameters():
            gradient = gradients[name]
            assert parameter.grad is not None
            assert gradient is not None
            off = (gradient - part.cuts.own(name, parameter.grad)).norm() / parameter.grad.norm()
            found["gradients"] = max(found["gradients"], off.item())
        with torch.inference_mode(), part.computing():
            output = part.whole_output(model(text()))
        found["inference"] = difference(output.clone(), whole(text()))
    return found


@pytest.mark.parametrize("sequence", [False, True], ids=["", "sequence"])
def test_half_precision_and_inference(sequence: bool, tmp_path: Path) -> None:
    for found in run_ranks(half_precision, 2, tmp_path, sequence):
        assert found["same dtypes"]
        assert found["loss"] < 1e-2
        assert found["gradients"] < 0.1
        assert found["inference"] < 1e-5


class Recomputed(GPT):
    def __init__(self) -> None:
        super().__init__(dropout=0.3)
        for block in self.blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def dropout_and_recomputation() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with workers() as mesh:
        for sequence in (False, True):
            gradients = []
            for make in (functools.partial(GPT, dropout=0.3), Recomputed):
                model = built(make)
                part = sliced(model, mesh, sequence=sequence)
                torch.manual_seed(5)
                with part.computing():
                    loss = next_word(model(text()), text(2))
                    torch.autograd.backward(loss)
                gradients.append([each.grad for each in model.parameters()])
            found[f"loss {sequence}"] = loss.item()
            found[f"recomputed {sequence}"] = all(map(torch.equal, *gradients))
        block = GPTBlock(dropout=0.5)
        dropped: list[torch.Tensor] = []
        part = sliced(nn.Sequential(nn.Embedding(200, WIDTH), block, nn.Linear(WIDTH, 8)), mesh)
        block.dropout.register_forward_hook(lambda module, args, output: dropped.append(output))
        with part.computing():
            block(torch.ones(2, LENGTH, WIDTH))
        whole, divided = dropped
        found["whole"] = (whole == 0).tolist()
        found["divided"] = (divided.to_local() == 0).tolist()  # type: ignore[attr-defined]
    return found


def test_dropout_is_the_same_for_whole_values_and_another_for_slices(tmp_path: Path) -> None:
    first, second = run_ranks(dropout_and_recomputation, 2, tmp_path)
    assert first["loss False"] == second["loss False"]
    assert first["loss True"] == second["loss True"]
    assert all(
        found[f"recomputed {sequence}"] for found in (first, second) for sequence in (False, True)
    )
    assert first["whole"] == second["whole"]
    assert first["divided"] != second["divided"]


def collectives() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with workers() as mesh:
        for name, make in {"fused": GPT, "separate": Llama}.items():
            model = built(make)
            part = sliced(model, mesh)
            with part.computing(), Collectives() as seen:
                loss = next_word(model(text()), text(2))
                found[f"{name} forward"] = seen.seen["allreduce"]
                torch.autograd.backward(loss)
            found[name] = dict(seen.seen)
    return found


def test_two_sums_per_block_in_forward_and_two_in_backward(tmp_path: Path) -> None:
    found = run_ranks(collectives, 2, tmp_path)[0]
    # The embedding's, four of two blocks, two of the loss; four of two blocks, and the head's.
    assert found["fused forward"] == found["separate forward"] == 7
    assert found["fused"] == {"allreduce": 12}
    norms_of_heads = 4
    assert found["separate"] == {"allreduce": 12 + norms_of_heads}


def tied_and_copied() -> dict[str, Any]:
    with workers() as mesh:
        model, plain = built(GPT), built(GPT)
        marked = model.get_parameter("embed.weight")
        marked.undecayed = True  # type: ignore[attr-defined]
        part = sliced(model, mesh)
        twin = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
            with part.computing():
                same = part.whole_output(twin(text()))
        return {
            "tied": model.get_submodule("head").weight is model.get_submodule("embed").weight,
            "marked": hasattr(model.get_parameter("embed.weight"), "undecayed"),
            "both names": part.is_sliced("head.weight") and part.is_sliced("embed.weight"),
            "copy": difference(same, plain(text())),
            "group": dist.get_world_size(mesh.get_group()),
        }


def test_ties_marks_and_copies_are_kept(tmp_path: Path) -> None:
    for found in run_ranks(tied_and_copied, 2, tmp_path):
        assert found["copy"] < 1e-5
        assert found | {"copy": 0} == {
            "tied": True,
            "marked": True,
            "both names": True,
            "copy": 0,
            "group": 2,
        }


@given(
    parts=st.lists(st.integers(4, 9), min_size=1, max_size=3),
    ways=st.integers(2, 4),
    dimension=st.integers(0, 1),
)
def test_slices_joined_are_the_whole(parts: list[int], ways: int, dimension: int) -> None:
    cut = Cut(dimension, tuple(ways * part for part in parts) if len(parts) > 1 else tuple(parts))
    shape = [3, 3]
    shape[dimension] = sum(cut.parts)
    whole = torch.arange(shape[0] * shape[1]).view(shape)
    if all(-(-part // -(-part // ways)) == ways for part in cut.parts):
        slices = [cut.slice(whole, number, ways) for number in range(ways)]
        assert [each.shape[dimension] for each in slices] == [
            sum(cut.shares(number, ways)) for number in range(ways)
        ]
        assert torch.equal(cut.joined(slices), whole)
