"""Checkpoints on a real S3 server: the same promises, without renames and links."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from command import paceline, paceline_json, write_training
from data.s3_server import S3Server, serving
from paceline.recover.storage import Bucket
from paceline.specs import Saving
from recover.saved import Checkpoints, state

URL = "s3://bucket/checkpoints"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("s3")
    with serving(folder) as running:
        yield running


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty bucket, reached by what users set in their environment."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    folder = server.folder / "bucket"
    folder.mkdir()
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def _checkpoints(saving: Saving | None = None) -> Checkpoints:
    return Checkpoints(Path(), saving, Bucket(URL))


def test_saved_read_thinned_out_and_taken_over(bucket: Path) -> None:
    checkpoints = _checkpoints(Saving(keep_last=2))
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
    assert not (bucket / "checkpoints" / "step-0000000010").exists()


@pytest.mark.parametrize("damage", ["changed", "removed", "no seal"])
def test_damage(damage: str, bucket: Path) -> None:
    checkpoints = _checkpoints()
    checkpoints.save(10)
    checkpoints.save(20)
    folder = bucket / "checkpoints" / "step-0000000020"
    file = folder / (
        "manifest.json.sha256" if damage == "no seal" else "model-00000-000.safetensors"
    )
    if damage == "changed":
        contents = bytearray(file.read_bytes())
        contents[-1] ^= 1
        file.write_bytes(contents)
    else:
        file.unlink()
    found = _checkpoints().newest()
    assert found is not None
    assert found[0] == 10
    assert _checkpoints().steps() == [10]


def test_what_was_left_unfinished_is_cleared(bucket: Path) -> None:
    checkpoints = _checkpoints()
    checkpoints.save(10)
    checkpoints.storage.draft(20, 0).write("model-00000-000.safetensors", [b"half"])
    checkpoints.storage.clear_drafts()
    assert {path.name for path in (bucket / "checkpoints").iterdir()} == {"step-0000000010"}


def test_a_run(bucket: Path, tmp_path: Path) -> None:
    write_training(tmp_path)
    words = ("run", "train.py", "-n", "2", "--save-every", "5", "--checkpoints", URL)
    result = paceline_json(*words, folder=tmp_path)
    assert result["checkpoints"]["last_step"] == 20
    assert not result["trouble"]
    (kept,) = (bucket / "checkpoints").iterdir()
    assert {path.name for path in kept.iterdir()} == {"step-0000000015", "step-0000000020"}
    (run,) = (tmp_path / "runs").iterdir()
    assert kept.name == run.name
    assert "has taken all its 20 steps" in paceline("resume", run, folder=tmp_path, expect=2).stderr
