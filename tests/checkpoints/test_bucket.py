"""Checkpoints on a real S3 server: the same promises, without renames and links."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fsspec.core import url_to_fs

from checkpoints.saved import Checkpoints, state
from command import paceline_json, write_training
from paceline.checkpoints.bucket import Bucket
from paceline.specs import Saving


def _checkpoints(bucket: str, saving: Saving | None = None) -> Checkpoints:
    return Checkpoints(Path(), saving, Bucket(bucket))


def _files(bucket: str) -> tuple[Any, str]:
    files, path = url_to_fs(bucket)
    files.invalidate_cache()
    return files, path


def _names(bucket: str) -> set[str]:
    files, path = _files(bucket)
    return {each.rstrip("/").split("/")[-1] for each in files.ls(path, detail=False)}


def test_saved_read_thinned_out_and_taken_over(bucket: str) -> None:
    checkpoints = _checkpoints(bucket, Saving(keep_last=2))
    frozen = {"embedding": torch.randn(500, 10)}
    for step in (10, 20, 30):
        checkpoints.save(step, state(step), frozen)
    assert not checkpoints.told.flaws
    assert checkpoints.steps() == [20, 30]
    assert checkpoints.told.costs[30].linked_bytes > 20_000
    found = checkpoints.newest()
    assert found is not None
    assert found[0] == 30
    assert torch.equal(found[1]["layer.weight"], state(30)["layer.weight"])
    assert _names(bucket) == {"step-0000000020", "step-0000000030"}


@pytest.mark.parametrize("damage", ["changed", "removed", "no seal"])
def test_damage(damage: str, bucket: str) -> None:
    checkpoints = _checkpoints(bucket)
    checkpoints.save(10)
    checkpoints.save(20)
    files, path = _files(bucket)
    name = "manifest.json.sha256" if damage == "no seal" else "model-00000-000.safetensors"
    file = f"{path}/step-0000000020/{name}"
    if damage == "changed":
        contents = bytearray(files.cat_file(file))
        contents[-1] ^= 1
        files.pipe_file(file, bytes(contents))
    else:
        files.rm_file(file)
    found = _checkpoints(bucket).newest()
    assert found is not None
    assert found[0] == 10
    assert _checkpoints(bucket).steps() == [10]


def test_what_was_left_unfinished_is_cleared(bucket: str) -> None:
    checkpoints = _checkpoints(bucket)
    checkpoints.save(10)
    checkpoints.storage.draft(20, 0).write("model-00000-000.safetensors", [b"half"])
    checkpoints.storage.clear_drafts()
    assert _names(bucket) == {"step-0000000010"}


def test_a_run(bucket: str, tmp_path: Path) -> None:
    write_training(tmp_path)
    words = ("run", "train.py", "-n", "2", "--save-every", "5", "--checkpoints", bucket)
    result = paceline_json(*words, folder=tmp_path)
    assert result["checkpoints"]["last_step"] == 20
    assert not result["trouble"]
    (run,) = (tmp_path / "runs").iterdir()
    assert _names(bucket) == {run.name}
    assert _names(f"{bucket}/{run.name}") == {"step-0000000015", "step-0000000020"}
