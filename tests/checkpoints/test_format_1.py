"""Checkpoints that version 0.1 wrote stay readable: two workers' files, stored with these tests."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoints.saved import Told
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.manifest import MANIFEST, SEAL, Scalar, digest_of
from paceline.checkpoints.retention import expired
from paceline.checkpoints.saved_state import SavedState
from paceline.checkpoints.tensor_extent import Extent
from paceline.checkpoints.tensor_loading import fill
from paceline.checkpoints.verification import newest_good, saved_at
from paceline.specs import PacelineError, Saving

STORED = Path(__file__).parent / "format_1"
NEWEST = "step-0000000020"
FILE = "model-00000-000.safetensors"
SHAPES = {
    "model/weight": (7, 3),
    "model/bias": (5,),
    "model/scale": (),
    "optimizer/weight/exp_avg": (7, 3),
}

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy that nobody else can write: a checkout's modes depend on the umask."""
    shutil.copytree(STORED, tmp_path / "checkpoints", copy_function=shutil.copyfile)
    for path in (tmp_path / "checkpoints").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return tmp_path / "checkpoints"


def written(step: int) -> dict[str, torch.Tensor]:
    """The tensors as they were saved."""
    generator = torch.Generator().manual_seed(step)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def newest(folder: Path) -> tuple[SavedState, Told]:
    told = Told()
    found = newest_good(
        Folder(folder), worker=0, workers=1, all_agree=lambda good: good, on_damage=told.damaged
    )
    assert found is not None
    return found, told


def read(saved: SavedState, rows: range) -> None:
    """Read rows of the matrices, and all of the rest, as a worker of another layout would."""
    for name, expected in written(saved.manifest.step).items():
        part = expected[rows.start : rows.stop] if expected.ndim == 2 else expected
        extent = Extent.everything(tuple(part.shape))
        if expected.ndim == 2:
            extent = Extent.slice(tuple(part.shape), 0, [rows], len(expected))
        tensor = torch.full_like(part, torch.nan)
        fill(extent.pieces(name, tensor), saved)
        assert torch.equal(tensor, part)


@pytest.mark.parametrize("rows", [range(7), range(4), range(2, 6), range(4, 7), range(3, 3)])
def test_any_layout_reads_it(rows: range, folder: Path) -> None:
    saved, told = newest(folder)
    assert (saved.manifest.step, told.flaws) == (20, {})
    assert saved.manifest.metrics == {"loss": 0.5}
    assert saved.manifest.data == {"batch": 10}
    assert saved.manifest.values == {"groups": [{"lr": 0.1}]}
    assert saved.manifest.scalars["optimizer/weight/step"] == Scalar(value=20.0, dtype="float32")
    read(saved, rows)


def test_every_flipped_bit_of_every_file(folder: Path) -> None:
    for path in sorted((folder / NEWEST).iterdir()):
        whole = path.read_bytes()
        for number in range(0, len(whole), max(1, len(whole) // 23)):
            changed = bytearray(whole)
            changed[number] ^= 1 << number % 8
            path.write_bytes(changed)
            saved, told = newest(folder)
            assert saved.manifest.step == 10
            assert path.name.removesuffix(".sha256") in told.flaws[20]
            (folder / f"damaged-{NEWEST}").rename(folder / NEWEST)
        path.write_bytes(whole)
    assert newest(folder)[0].manifest.step == 20


def test_each_worker_verifies_some_of_the_files(folder: Path) -> None:
    index = saved_at(Folder(folder), 20).index
    shares = [name for worker in range(3) for name, _ in index.share(worker, 3)]
    files = {path.name for path in (folder / NEWEST).glob("*.safetensors")}
    assert sorted(shares) == sorted(files)


def test_retention_knows_its_metrics(folder: Path) -> None:
    storage = Folder(folder)
    figures = {step: saved_at(storage, step).manifest.metrics for step in storage.steps()}
    assert expired(figures, Saving(keep_last=1, keep_best="min loss")) == set()


def _move(name: str) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        manifest["files"][name] = manifest["files"].pop(FILE)
        for stored in manifest["tensors"].values():
            for piece in stored["pieces"]:
                piece["file"] = name

    return change


def _piece(**fields: Any) -> Change:
    return lambda manifest: manifest["tensors"]["model/weight"]["pieces"][0].update(fields)


def _overlap(manifest: dict[str, Any]) -> None:
    pieces = manifest["tensors"]["model/weight"]["pieces"]
    pieces[1] = pieces[0] | {"shape": [3, 3]}


def forge(folder: Path, change: Change) -> None:
    """Change a manifest and seal it again, as anybody can who can write there."""
    path = folder / NEWEST / MANIFEST
    manifest = json.loads(path.read_bytes())
    change(manifest)
    text = json.dumps(manifest).encode()
    path.write_bytes(text)
    path.with_name(SEAL).write_bytes(digest_of(text))


@pytest.mark.parametrize(
    "name", ["../../secret", "/etc/passwd", "..", "a/b", ".hidden", "", "a\x00b", "a\nb", "x" * 300]
)
def test_a_name_that_leads_elsewhere(name: str, folder: Path) -> None:
    forge(folder, _move(name))
    saved, told = newest(folder)
    assert saved.manifest.step == 10
    assert "cannot be read: String should" in told.flaws[20]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_piece(file="other.safetensors"), "in a file that is not said to belong to it"),
        (_piece(offset=[0, 1]), "does not lie within its tensor"),
        (_piece(shape=[10**18, 3]), "does not lie within its tensor"),
        (_piece(offset=[0]), "does not lie within its tensor"),
        (_piece(offset=[-1, 0]), "greater than or equal to 0"),
        (_piece(shape=[1, 3]), "the pieces of model/weight do not hold each of its elements"),
        (_overlap, "the pieces of model/weight do not hold each of its elements once"),
        (lambda manifest: manifest.update(files=[]), "should be an object"),
        (lambda manifest: manifest.update(evil="yes"), "Extra inputs"),
        (lambda manifest: manifest["files"][FILE].update(bytes=2**62), "of the 46116860184273879"),
    ],
)
def test_a_manifest_that_does_not_hold_together(change: Change, said: str, folder: Path) -> None:
    forge(folder, change)
    saved, told = newest(folder)
    assert saved.manifest.step == 10
    assert said in told.flaws[20]


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_format_of_another_version_is_refused_and_left_alone(number: int, folder: Path) -> None:
    """It is not damaged: an older checkpoint in its place would lose steps."""
    forge(folder, lambda manifest: manifest.update(format=number))
    with pytest.raises(PacelineError, match=f"has format {number}, and .* reads formats 1 to 2"):
        newest(folder)
    assert (folder / NEWEST).is_dir()
