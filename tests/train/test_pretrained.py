"""Pretrained weights: into every layout, in parts, under other names, and never from a pickle."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import paceline
from layouts.models import TiedGPT, training_of
from paceline import PacelineError, Pretrained
from paceline.checkpoints.tensor_extent import Extent
from paceline.checkpoints.weight_files import WeightFiles
from paceline.specs import Layout
from ranks import RankFailed, run_ranks

LAYOUTS = {
    "1 worker": Layout(),
    "2 replicas": Layout(replicas=2),
    "2 shards": Layout(shards=2),
    "2 slices": Layout(tensor=2),
    "2 stages": Layout(pipeline=2),
}


def source() -> dict[str, torch.Tensor]:
    """The weights of a seeded model, in half precision; the tied head under its first name only."""
    torch.manual_seed(5)
    state = TiedGPT().state_dict()
    return {name: each.bfloat16() for name, each in state.items() if name != "head.weight"}


def load_and_export(pretrained: Any, path: Path) -> None:
    with paceline.start(training_of("gpt", pretrained=pretrained, steps=1)) as trainer:
        trainer.export(path)


def loaded(pretrained: Any, layout: Layout, folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    path = folder / "out.safetensors"
    run_ranks(load_and_export, layout.workers, folder, pretrained, path, layout=layout)
    return load_file(path)


def check_loaded(state: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, each in expected.items():
        assert torch.equal(state[name], each.float()), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_its_part(layout: str, tmp_path: Path) -> None:
    save_file(source(), tmp_path / "model.safetensors")
    state = loaded(tmp_path / "model.safetensors", LAYOUTS[layout], tmp_path)
    check_loaded(state, source())
    assert torch.equal(state["head.weight"], state["embed.weight"])


def in_two_files(folder: Path, weights: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    names = sorted(weights)
    placed = {name: f"{'ab'[number % 2]}.safetensors" for number, name in enumerate(names)}
    for file in set(placed.values()):
        save_file({n: weights[n] for n in names if placed[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    return folder


def test_a_folder_with_an_index_and_other_names(tmp_path: Path) -> None:
    renamed = {name.replace("blocks.", "layers."): each for name, each in source().items()}
    folder = in_two_files(tmp_path / "folder", renamed)
    given = Pretrained(folder, rename={"layers.": "blocks."})
    check_loaded(loaded(given, Layout(shards=2), tmp_path), source())


def test_a_part_is_loaded_only_if_asked(tmp_path: Path) -> None:
    names = [name for name in source() if "blocks.0" in name]
    part = {name: source()[name] for name in names} | {"classifier.bias": torch.ones(3)}
    save_file(part, tmp_path / "part.safetensors")
    with pytest.raises(RankFailed) as refused:
        loaded(tmp_path / "part.safetensors", Layout(), tmp_path)
    said = str(refused.value)
    assert "lacks embed.weight" in said
    assert "has classifier.bias, which the model does not have" in said
    assert "partial=True" in said
    given = Pretrained(tmp_path / "part.safetensors", partial=True)
    check_loaded(loaded(given, Layout(), tmp_path), {name: source()[name] for name in names})


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({"x.weight": torch.ones(2)}, "has no weight of this model: it has x.weight"),
        ({"blocks.0.norm.weight": torch.ones(2)}, r"has the shape \[2\]"),
    ],
)
def test_what_does_not_fit_is_refused(
    weights: dict[str, torch.Tensor], says: str, tmp_path: Path
) -> None:
    save_file(weights, tmp_path / "model.safetensors")
    given = Pretrained(tmp_path / "model.safetensors", partial=True)
    with pytest.raises(RankFailed, match=says):
        loaded(given, Layout(), tmp_path)


def test_pickles_are_not_read(tmp_path: Path) -> None:
    for name in (".metadata", "pytorch_model.bin"):
        folder = tmp_path / f"of {name}"
        folder.mkdir()
        (folder / name).write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
        with pytest.raises(PacelineError, match="is or needs a pickle") as refused:
            WeightFiles.find(folder)
        assert "safetensors" in refused.value.fix
    (tmp_path / "model.pt").write_bytes(b"")
    with pytest.raises(PacelineError, match=r"model\.pt"):
        WeightFiles.find(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ('{"weight_map": {"a": "../../etc/passwd"}}', "not in its folder"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "not in its folder"),
        ("[]", "is no index"),
        ("{", "is no index"),
        ('{"weight_map": ["a"]}', "is no index"),
    ],
)
def test_an_index_stays_in_its_folder(index: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(PacelineError, match=says):
        WeightFiles.find(tmp_path)


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="there are no pretrained weights"):
        WeightFiles.find(tmp_path / "nowhere")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(PacelineError, match="cannot be read as safetensors"):
        WeightFiles.find(tmp_path)


def test_only_the_rows_that_are_held_are_copied(tmp_path: Path) -> None:
    save_file({"a": torch.arange(12.0).view(4, 3)}, tmp_path / "model.safetensors")
    held = torch.zeros(2, 3)
    extent = Extent.slice((2, 3), 0, [range(1, 3)], 4)
    WeightFiles.find(tmp_path).fill(extent.pieces("a", held))
    assert held.tolist() == [[3, 4, 5], [6, 7, 8]]


def test_it_must_be_a_path() -> None:
    with pytest.raises(PacelineError, match=r"pretrained=…\) is of type Linear"):
        training_of("gpt", pretrained=nn.Linear(1, 1))
