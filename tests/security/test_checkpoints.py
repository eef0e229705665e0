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
from paceline.checkpoints.manifest import MANIFEST, SEAL, digest_of
from paceline.checkpoints.pages.format_1 import OldManifest
from paceline.checkpoints.pages.page import Page, PageEntry, Root
from paceline.checkpoints.storage import Damaged
from paceline.checkpoints.tensor_extent import Box
from paceline.checkpoints.verification import NewerFormat, saved_at
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


def _structure(**fields: Any) -> Change:
    return lambda root: next(iter(root["structures"].values())).update(fields)


def _part(**fields: Any) -> Change:
    return lambda root: root["page"]["workers"][0].update(fields)


def _weight(*box: list[int]) -> Change:
    """Say that the piece of the first tensor, layer.weight, is elsewhere."""

    def change(root: dict[str, Any]) -> None:
        root["page"]["workers"][0]["boxes"][0] = box

    return change


def _move(name: str) -> Change:
    return _structure(files=[[name, 0]])


def _page_at(name: str, **fields: Any) -> Change:
    """Name a page that is not there."""
    entry = {"name": name, "bytes": 9, "blake3": "0" * 64, "files": 1, "bounds": {}} | fields
    return lambda root: root.update(page={"pages": [entry]})


def _twice(root: dict[str, Any]) -> None:
    """Say that two workers hold the same half, and none the other: the number of elements is
    right."""
    (part,) = root["page"]["workers"]
    part["boxes"][0] = [[0, 0], [20, 30]]
    root["page"]["workers"].append(part)


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
    for number, change in enumerate((_move(name), _page_at(name))):
        checkpoints = saved(tmp_path / str(number))
        forge(checkpoints, change)
        assert "cannot be read: String should" in flaw(checkpoints)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_structure(file_of=[0, 0, 1]), "a structure has no such kind or file"),
        (_structure(kind_of=[0, 1, 3]), "a structure has no such kind or file"),
        (_structure(kind_of=[0, 1]), "columns of a structure have different lengths"),
        (_structure(name_of=[0, 0, 2]), "layer.weight has two forms"),
        (_structure(name_of=[0, 1, 3]), "a structure has no such name"),
        (_structure(name_of=[0, 1]), "columns of a structure have different lengths"),
        (_part(structure="0" * 32), "a structure that the root does not have"),
        (_part(boxes=[]), "another number of pieces than its structure"),
        (_part(files=[]), "another number of files than its structure"),
        (_weight([0, 1], [40, 30]), "does not lie within its tensor"),
        (_weight([0, 0], [10**18, 30]), "does not lie within its tensor"),
        (_weight([0], [40, 30]), "does not lie within its tensor"),
        (_weight([-1, 0], [40, 30]), "greater than or equal to 0"),
        (_page_at("manifest-0-00000.json"), "manifest-0-00000.json is missing"),
        (_page_at("manifest-0-00000.json", bytes=1 << 30), "less than or equal to 67108864"),
        (_page_at("manifest-0-00000.json", files=0), "greater than 0"),
        (_page_at(MANIFEST), "more than the 9 that it may have"),
        (lambda root: root.update(page=[]), "should be an object"),
        (lambda root: root.update(structures=[]), "should be an object"),
        (lambda root: root.update(evil="yes"), "Extra inputs"),
        (
            _part(files=[{"bytes": 2**62, "blake3": "0" * 64}]),
            "of the 46116860184273879",
        ),
    ],
)
def test_a_manifest_that_does_not_hold_together(change: Change, said: str, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    forge(checkpoints, change)
    assert said in flaw(checkpoints)


@pytest.mark.parametrize("change", [_weight([0, 0], [1, 30]), _twice], ids=["gap", "overlap"])
def test_pieces_that_do_not_cover_their_tensor(change: Change, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    forge(checkpoints, change)
    with pytest.raises(PacelineError, match=r"not hold each element of layer\.weight once"):
        checkpoints.newest()


def test_pages_that_name_each_other_again_and_again(tmp_path: Path) -> None:
    """Each of a few small files names the one below twice; all of them together, 2^7 times."""
    checkpoints = saved(tmp_path)
    folder = checkpoints.folder / STEP
    page = Root.model_validate_json((folder / MANIFEST).read_bytes()).page
    for level in range(7):
        text, name = page.model_dump_json().encode(), f"manifest-{level}-00000.json"
        write_owned(folder / name, text)
        entry = PageEntry(
            name=name,
            bytes=len(text),
            blake3=blake3(text).hexdigest(),
            files=page.files,
            bounds=page.bounds(),
        )
        page = Page(pages=(entry, entry))
    forge(checkpoints, lambda root: root.update(page=page.model_dump(mode="json")))
    assert "is named twice" in flaw(checkpoints)


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
    with pytest.raises(Damaged, match="String should"):
        saved_at(bucket, 20)
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
    forge(checkpoints, _part(files=[record]))
    with pytest.raises(PacelineError, match="somebody has written it by hand"):
        checkpoints.newest()


@given(
    text=st.binary(max_size=200)
    | st.one_of([spoilt(allowed(each.model_json_schema())) for each in (Root, OldManifest)]).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_any_manifest_is_one_or_damaged(
    text: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkpoints = tmp_path_factory.getbasetemp() / "manifests"
    storage, folder = Folder(checkpoints), checkpoints / STEP
    make_folder(folder, exist_ok=True)
    write_owned(folder / MANIFEST, text)
    write_owned(folder / SEAL, digest_of(text))
    with suppress(Damaged, NewerFormat):
        for name, _ in saved_at(storage, 20).index.share(0, 1):
            assert (folder / name).parent == folder


@given(data=st.data())
def test_any_page_is_one_or_damaged(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A page with a hash that fits: what a node wrote with a flaw in it, or anything else."""
    place = tmp_path_factory.getbasetemp() / "pages"
    checkpoints = Checkpoints(place)
    if not checkpoints.steps():
        checkpoints.save(20)
        (place / STEP / MANIFEST).rename(place / "root.json")
    root = Root.model_validate_json((place / "root.json").read_bytes())
    flawed = spoilt(st.just(root.page.model_dump(mode="json")))
    page = flawed | spoilt(allowed(Page.model_json_schema()))
    text = data.draw(st.binary(max_size=200) | page.map(lambda value: json.dumps(value).encode()))
    name = "manifest-0-00000.json"
    entry = PageEntry(
        name=name,
        bytes=len(text),
        blake3=blake3(text).hexdigest(),
        files=1,
        bounds=root.page.bounds(),
    )
    whole = root.model_copy(update={"page": Page(pages=(entry,))}).text()
    for file, contents in ((name, text), (MANIFEST, whole), (SEAL, digest_of(whole))):
        write_owned(place / STEP / file, contents)
    with suppress(Damaged):
        index = saved_at(checkpoints.storage, 20).index
        for file, _ in index.share(0, 1):
            assert (place / STEP / file).parent == place / STEP
        for piece in index.find("layer.weight", Box((3, 4), (5, 6))):
            assert (place / STEP / piece.file).parent == place / STEP
