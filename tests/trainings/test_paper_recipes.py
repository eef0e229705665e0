"""The recipes have the models that they name, learn in small, and do so on two workers, too."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from benchmarks.planner.pages.recipes import RECIPES
from command import EXAMPLES, paceline, paceline_json
from paceline.profile.named_models import profile_of

FOLDER = EXAMPLES / "recipes"
PAGE = Path(__file__).parents[2] / "docs/recipes.md"
SEGMENTS = 2 * 1024
"""Parameters of BERT's segments, which the recipe leaves out."""
LENGTH = 32
"""Tokens in a piece of text, in small."""
FEW = 5
"""Tokens that a prior counts for."""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("resnet50", "bert", "vit", "textures"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("script", "function", "planned", "missing"),
    [
        ("resnet50", "resnet50", "resnet50", 0),
        ("bert", "bert_large", "bert-large", SEGMENTS),
        ("vit", "vit_large", "vit-l16", 0),
    ],
)
def test_the_model_is_the_one_that_is_planned(
    scripts: None, script: str, function: str, planned: str, missing: int
) -> None:
    with torch.device("meta"):
        model = getattr(importlib.import_module(script), function)()
    parameters = sum(each.numel() for each in model.parameters())
    assert parameters == profile_of(planned).parameters - missing
    assert f"{parameters:,} parameters" in PAGE.read_text()


@pytest.mark.parametrize("name", RECIPES)
def test_the_page_has_a_plan_for_each_number_of_devices(name: str) -> None:
    found = re.search(f"<!-- recipes: {name} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert found
    assert re.findall(r"^\| ([\d,]+) \|", found[1], re.M) == ["1", "16", "64", "256", "1,024"]


def test_berts_held_out_text_tells_nothing_of_what_is_hidden(scripts: None) -> None:
    """So without the other tokens, no model is better than their frequencies."""
    bert = importlib.import_module("bert")
    held_out = bert.MaskedText(LENGTH, held_out=True)
    for index in range(3):
        tokens, target = held_out[index]
        chosen = target != bert.NOT_MASKED
        assert chosen.sum() == round(bert.MASKED * LENGTH)
        assert (tokens[chosen] == bert.MASK).all()
        assert (tokens[~chosen] == held_out.pieces[index][~chosen]).all()
        again = held_out[index]
        assert (tokens == again[0]).all()
        assert (target == again[1]).all()


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("script", "options", "loss"),
    [("resnet50", ["--batch-norm", "synchronized"], 0.9), ("vit", [], 1.5)],
)
def test_it_learns_as_well_on_two_workers(
    script: str, options: list[str], loss: float, tmp_path: Path
) -> None:
    alone = trained(script, tmp_path, "1", 400)
    both = trained(script, tmp_path, "2", 400, *options)
    assert alone["final_loss"] < loss
    assert both["final_loss"] == pytest.approx(alone["final_loss"], rel=0.01)


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_bert_learns_from_the_tokens_around(scripts: None, tmp_path: Path) -> None:
    """Better than the frequencies of the tokens, and than those between two neighbors."""
    alone, both = (
        trained("bert", tmp_path, workers, 1000)["metrics"]["validation/loss"]["last"]
        for workers in "12"
    )
    frequencies, neighbors = nulls(importlib.import_module("bert"))
    assert alone < neighbors < frequencies
    assert both == pytest.approx(alone, rel=0.03)


def trained(script: str, folder: Path, workers: str, seconds: float, *options: str) -> Any:
    """The report of a run in small."""
    given = ["-n", workers, "--name", f"on-{workers}", *options, "--", "--small"]
    paceline("run", FOLDER / f"{script}.py", *given, folder=folder, seconds=seconds)
    (run,) = (folder / "runs").glob(f"on-{workers}-*")
    return paceline_json("report", run, folder=folder)


def nulls(bert: ModuleType) -> tuple[float, float]:
    """Held-out loss by the frequencies of the training's tokens, and by those between neighbors.

    Neighbors that the training seldom has together count apart from each other. A hidden neighbor
    tells nothing, nor does an end of the piece.
    """
    text, _ = bert.split_text()
    tokens, target = map(torch.stack, zip(*bert.MaskedText(LENGTH, held_out=True), strict=True))
    chosen = target != bert.NOT_MASKED
    padded = F.pad(tokens, (1, 1), value=bert.MASK)
    left, right, hidden = padded[:, :-2][chosen], padded[:, 2:][chosen], target[chosen]

    frequency = torch.bincount(text, minlength=bert.TOKENS) / len(text)
    counts = torch.zeros(3 * [bert.TOKENS])
    counts.index_put_((text[:-2], text[2:], text[1:-1]), torch.ones(()), accumulate=True)

    def smoothed(seen: torch.Tensor, prior: torch.Tensor) -> torch.Tensor:
        return (seen + FEW * prior) / (seen.sum(-1, keepdim=True) + FEW)

    by_left = smoothed(counts.sum(1), frequency)[left]
    by_right = smoothed(counts.sum(0), frequency)[right]
    apart = by_left * by_right / frequency.clamp(min=1e-9)
    between = smoothed(counts[left, right], apart / apart.sum(-1, keepdim=True))
    each = torch.arange(len(hidden))
    return (
        -frequency[hidden].log().mean().item(),
        -between[each, hidden].log().mean().item(),
    )
