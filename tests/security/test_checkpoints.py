"""What somebody who can write to where checkpoints are can make of it."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.checkpoint.filesystem import FileSystemReader

from checkpoints.saved import SHAPES, Checkpoints, state
from paceline.checkpoints.bucket import Bucket
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.manifest import MANIFEST, SEAL, Manifest, digest_of
from paceline.checkpoints.storage import Damaged
from paceline.checkpoints.verification import manifest_of
from paceline.specs import PacelineError
from paceline.specs.owned_files import make_folder, write_owned
from security.payload import Payload
from security.schemas import allowed, spoilt

STEP = "step-0000000020"
FILE = "model-00000-000.safetensors"

Change = Callable[[dict[str, Any]], None]


def saved(folder: Path) -> Checkpoints:
    checkpoints = Checkpoints(folder / "checkpoints")
    checkpoints.save(20)
    return checkpoints


def forge(checkpoints: Checkpoints, change: Change, step: str = STEP) -> None:
    """Change the manifest and seal it again, as anybody can."""
    path = checkpoints.folder / step / MANIFEST
    manifest = json.loads(path.read_bytes())
    change(manifest)
    text = json.dumps(manifest).encode()
    path.write_bytes(text)
    path.with_name(SEAL).write_bytes(digest_of(text))


def flaw(checkpoints: Checkpoints) -> str:
    with pytest.raises(PacelineError, match="none of the 1 checkpoints"):
        checkpoints.newest()
    return checkpoints.told.flaws[20]


def _move(name: str) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        manifest["files"][name] = manifest["files"].pop(FILE)
        for stored in manifest["tensors"].values():
            for piece in stored["pieces"]:
                piece["file"] = name

    return change


def _piece(**fields: Any) -> Change:
    return lambda manifest: manifest["tensors"]["layer.weight"]["pieces"][0].update(fields)


def _overlap(manifest: dict[str, Any]) -> None:
    """Name the first half twice and the second never: the number of elements is right."""
    pieces = manifest["tensors"]["layer.weight"]["pieces"]
    pieces[:] = [pieces[0] | {"shape": [20, 30]}] * 2


def test_torchs_metadata_runs_what_is_in_it(tmp_path: Path) -> None:
    """The control: the same attack on a checkpoint as torch itself writes them."""
    payload = Payload(tmp_path)
    (tmp_path / ".metadata").write_bytes(payload.pickled)
    with suppress(AttributeError):  # what was unpickled is no metadata
        FileSystemReader(tmp_path).read_metadata()
    assert payload.has_run()


@pytest.mark.parametrize(
    "name", ["../../secret", "/etc/passwd", "..", "a/b", ".hidden", "", "a\x00b", "a\nb", "x" * 300]
)
def test_a_name_that_leads_elsewhere(name: str, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    forge(checkpoints, _move(name))
    assert "cannot be read: String should" in flaw(checkpoints)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_piece(file="other.safetensors"), "in a file that is not said to belong to it"),
        (_piece(offset=[0, 1]), "does not lie within its tensor"),
        (_piece(shape=[10**18, 30]), "does not lie within its tensor"),
        (_piece(offset=[0]), "does not lie within its tensor"),
        (_piece(offset=[-1, 0]), "greater than or equal to 0"),
        (_piece(shape=[1, 30]), "the pieces of layer.weight do not hold each of its elements"),
        (_overlap, "the pieces of layer.weight do not hold each of its elements once"),
        (lambda manifest: manifest.update(files=[]), "should be an object"),
        (lambda manifest: manifest.update(evil="yes"), "Extra inputs"),
        (lambda manifest: manifest["files"][FILE].update(bytes=2**62), "of the 46116860184273879"),
    ],
)
def test_a_manifest_that_does_not_hold_together(change: Change, said: str, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    forge(checkpoints, change)
    assert said in flaw(checkpoints)


@pytest.mark.parametrize("name", [FILE, MANIFEST, SEAL])
@pytest.mark.parametrize(
    "put",
    [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")],
    ids=["pipe", "folder", "device"],
)
def test_what_could_be_read_for_ever_is_not_read(
    name: str, put: Callable[[Path], None], tmp_path: Path
) -> None:
    checkpoints = saved(tmp_path)
    path = checkpoints.folder / STEP / name
    path.unlink()
    put(path)
    assert flaw(checkpoints) == f"{name} is no file"


def test_a_manifest_larger_than_memory(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    os.truncate(checkpoints.folder / STEP / MANIFEST, 1 << 40)  # takes no room on the disk
    assert "more than the 1073741824 that it may have" in flaw(checkpoints)


def test_a_bucket_writes_nothing_beside_its_copies(tmp_path: Path) -> None:
    """A name with a path in it would make a node overwrite any file of the user's."""
    checkpoints = saved(tmp_path)
    target = tmp_path / "authorized_keys"
    forge(checkpoints, _move(str(target)))
    (checkpoints.folder / STEP / FILE).rename(tmp_path / "source")
    bucket = Bucket(f"local://{checkpoints.folder}")
    with pytest.raises(Damaged, match="String should match"):
        manifest_of(bucket, 20)
    assert not target.exists()


@pytest.mark.parametrize("name", [f".{FILE}", FILE])
def test_links_in_a_draft_are_not_followed(name: str, tmp_path: Path) -> None:
    target = tmp_path / "bashrc"
    target.write_text("mine")
    draft = tmp_path / "checkpoints" / f".draft-{STEP}-0"
    draft.mkdir(parents=True)
    (draft / name).symlink_to(target)
    found = saved(tmp_path).newest()
    assert found is not None
    assert torch.equal(found[1]["layer.bias"], state(20)["layer.bias"])
    assert target.read_text() == "mine"


def test_a_draft_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints" / f".draft-{STEP}-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PacelineError, match="leads elsewhere"):
        Folder(tmp_path / "checkpoints").draft(20, 0)
    Folder(tmp_path / "checkpoints").clear_drafts()
    assert (tmp_path / "elsewhere").is_dir()


def _tensors(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


WHOLE = {
    name: {"dtype": "F32", "shape": list(shape), "data_offsets": [0, 4 * torch.Size(shape).numel()]}
    for name, shape in SHAPES.items()
}


@pytest.mark.parametrize(
    "contents",
    [
        b"\xff" * 8,
        (1 << 62).to_bytes(8, "little") + b"{}",
        _tensors({}, b""),
        _tensors(WHOLE, bytes(4800)),  # all tensors at the same place
        _tensors({"layer.weight": WHOLE["layer.weight"]}, bytes(4)),
        _tensors(
            {"layer.weight": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 0]}}, b""
        ),
        _tensors({"layer.bias": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    ],
    ids=["length", "giant", "empty", "overlapping", "short", "overflow", "of another shape"],
)
def test_safetensors_with_a_wrong_header(contents: bytes, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    (checkpoints.folder / STEP / FILE).write_bytes(contents)
    record = {"bytes": len(contents), "blake3": blake3(contents).hexdigest()}
    forge(checkpoints, lambda manifest: manifest["files"].update({FILE: record}))
    with pytest.raises(PacelineError, match="somebody has written it by hand"):
        checkpoints.newest()


@given(
    text=st.binary(max_size=200)
    | spoilt(allowed(Manifest.model_json_schema())).map(lambda value: json.dumps(value).encode())
)
def test_any_manifest_is_one_or_damaged(
    text: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkpoints = tmp_path_factory.getbasetemp() / "manifests"
    storage, folder = Folder(checkpoints), checkpoints / STEP
    make_folder(folder, exist_ok=True)
    write_owned(folder / MANIFEST, text)
    write_owned(folder / SEAL, digest_of(text))
    with suppress(Damaged):
        for name in manifest_of(storage, 20).files:
            assert (folder / name).parent == folder
