"""The recipes have the models that they name, learn in small, and do so on two workers, too."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.planner.pages.recipes import RECIPES
from command import EXAMPLES, paceline, paceline_json
from paceline.profile.named_models import profile_of

FOLDER = EXAMPLES / "recipes"
PAGE = Path(__file__).parents[2] / "docs/recipes.md"
SEGMENTS = 2 * 1024
"""Parameters of BERT's segments, which the recipe leaves out."""


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


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("script", "options", "loss"),
    [
        ("resnet50", ["--batch-norm", "synchronized"], 0.9),
        ("bert", [], 3.5),  # 5.57 at first; the page says why not less
        ("vit", [], 1.5),
    ],
)
def test_it_learns_as_well_on_two_workers(
    script: str, options: list[str], loss: float, tmp_path: Path
) -> None:
    losses = []
    for workers in ("1", "2"):
        more = options if workers == "2" else []
        given = ["-n", workers, "--name", f"on-{workers}", *more, "--", "--small"]
        paceline("run", FOLDER / f"{script}.py", *given, folder=tmp_path, seconds=400)
        (run,) = (tmp_path / "runs").glob(f"on-{workers}-*")
        losses.append(paceline_json("report", run, folder=tmp_path)["final_loss"])
    assert losses[0] < loss
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
