"""Every way in which a checkpoint can be damaged is found, and the one before it is used."""

import os
import pickle
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from blake3 import blake3

from checkpoints.saved import Checkpoints, state
from paceline.checkpoints.manifest import digest_of
from paceline.checkpoints.pages.page import Page, Root
from paceline.specs import PacelineError

GOOD, NEWEST = "step-0000000010", "step-0000000020"
FILES = ("manifest.json", "manifest.json.sha256", "model-00000-000.safetensors")


def _cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _empty(file: Path) -> None:
    os.truncate(file, 0)


def _remove(file: Path) -> None:
    file.unlink()


def _swap(file: Path) -> None:
    shutil.copy(file.parent.parent / GOOD / file.name, file)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "cut short": _cut_short,
    "empty": _empty,
    "removed": _remove,
    "swapped": _swap,
}


def _two(folder: Path) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    checkpoints.save(10)
    checkpoints.save(20)
    assert checkpoints.steps() == [10, 20]
    return checkpoints


def _assert_falls_back(checkpoints: Checkpoints, file: str) -> None:
    found = checkpoints.newest()
    assert found is not None
    step, tensors = found
    assert step == 10
    assert all(torch.equal(tensors[name], tensor) for name, tensor in state(10).items())
    assert file.removesuffix(".sha256") in checkpoints.told.flaws[20]
    # The damaged one is kept for who wants to look, and never taken again.
    assert checkpoints.steps() == [10]
    assert (checkpoints.folder / f"damaged-{NEWEST}").is_dir()


def test_the_newest_is_taken_when_nothing_is_damaged(tmp_path: Path) -> None:
    checkpoints = _two(tmp_path)
    found = checkpoints.newest()
    assert found is not None
    assert found[0] == 20
    assert torch.equal(found[1]["layer.weight"], state(20)["layer.weight"])
    assert not checkpoints.told.flaws


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage(file: str, damage: str, tmp_path: Path) -> None:
    checkpoints = _two(tmp_path)
    assert {path.name for path in (tmp_path / NEWEST).iterdir()} == set(FILES)
    DAMAGE[damage](tmp_path / NEWEST / file)
    _assert_falls_back(checkpoints, file)


@pytest.mark.parametrize("file", FILES)
def test_every_flipped_bit(file: str, tmp_path: Path) -> None:
    """One bit in each of many bytes, spread over the file; in small files in every byte."""
    checkpoints = _two(tmp_path)
    path = tmp_path / NEWEST / file
    whole = path.read_bytes()
    for number in range(0, len(whole), max(1, len(whole) // 97)):
        changed = bytearray(whole)
        changed[number] ^= 1 << number % 8
        path.write_bytes(changed)
        _assert_falls_back(checkpoints, file)
        shutil.move(tmp_path / f"damaged-{NEWEST}", tmp_path / NEWEST)


def test_a_whole_checkpoint_under_another_name(tmp_path: Path) -> None:
    checkpoints = _two(tmp_path)
    shutil.rmtree(tmp_path / NEWEST)
    shutil.copytree(tmp_path / GOOD, tmp_path / NEWEST)
    _assert_falls_back(checkpoints, "manifest.json")


def test_what_each_message_says(tmp_path: Path) -> None:
    for damage, said in (
        (_cut_short, r"model-00000-000.safetensors has \d+ bytes of the \d+ that were written"),
        (_remove, "model-00000-000.safetensors is missing"),
        (_swap, "model-00000-000.safetensors has changed"),
    ):
        folder = tmp_path / damage.__name__
        checkpoints = _two(folder)
        damage(folder / NEWEST / FILES[2])
        checkpoints.newest()
        assert re.search(said, checkpoints.told.flaws[20])


def test_none_is_good(tmp_path: Path) -> None:
    checkpoints = _two(tmp_path)
    for step in (GOOD, NEWEST):
        _remove(tmp_path / step / "manifest.json")
    with pytest.raises(PacelineError, match="none of the 2 checkpoints"):
        checkpoints.newest()


def test_there_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path).newest() is None


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {os.environ['EVIL']}",)


@pytest.mark.parametrize("file", FILES)
def test_a_pickle_in_any_file_runs_nothing(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when whoever put it there has sealed the checkpoint again."""
    monkeypatch.setenv("EVIL", str(tmp_path / "ran"))
    checkpoints = _two(tmp_path / "checkpoints")
    folder = tmp_path / "checkpoints" / NEWEST
    payload = pickle.dumps(Evil())
    (folder / file).write_bytes(payload)
    if file == FILES[2]:
        root = Root.model_validate_json((folder / FILES[0]).read_bytes())
        (part,) = root.page.workers
        record = part.files[0].model_copy(
            update={"bytes": len(payload), "blake3": blake3(payload).hexdigest()}
        )
        page = Page(workers=(part.model_copy(update={"files": (record,)}),))
        text = root.model_copy(update={"page": page}).text()
        (folder / FILES[0]).write_bytes(text)
        (folder / FILES[1]).write_bytes(digest_of(text))
        with pytest.raises(PacelineError, match="no safetensors file"):
            checkpoints.newest()
    else:
        _assert_falls_back(checkpoints, file)
    assert not (tmp_path / "ran").exists()


def test_the_seal_is_what_sha256sum_reads(tmp_path: Path) -> None:
    _two(tmp_path)
    subprocess.run(
        ["sha256sum", "--check", "--strict", FILES[1]],
        cwd=tmp_path / NEWEST,
        check=True,
        capture_output=True,
    )
