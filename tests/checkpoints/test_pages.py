"""The manifest in pages: any layout saves, any other reads, and all damage is found."""

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints.saved import Told
from checkpoints.workers import Division, Workers, newest, read, whole
from paceline.checkpoints import tensor_files
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.manifest import MANIFEST, SEAL
from paceline.checkpoints.pages import collection
from paceline.checkpoints.pages.collection import duties
from paceline.checkpoints.pages.page import Root
from paceline.checkpoints.saver import Saver
from paceline.checkpoints.tensor_extent import Extent
from paceline.checkpoints.verification import saved_at
from paceline.specs import Placement, Saving

NEWEST = "step-0000000020"


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """A few workers have pages of three levels, and several files each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collection, "FAN_IN", 2)
        patch.setattr(tensor_files, "_SMALLEST_FILE_BYTES", 64)
        yield


@contextmanager
def a_folder() -> Iterator[Path]:
    """A folder for one example."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "checkpoints"


def rows_of(shape: tuple[int, ...], at: int, cuts: list[int], worker: int, copies: int) -> Extent:
    """Everything between two cuts along a dimension, held by `copies` workers."""
    begin, end = cuts[worker // copies], cuts[worker // copies + 1]
    held = (*shape[:at], end - begin, *shape[at + 1 :])
    extent = Extent.slice(held, at, [range(begin, end)], shape[at])
    return extent.among(copies, worker % copies)


@st.composite
def divisions(draw: st.DrawFn, shape: tuple[int, ...], workers: int) -> Division:
    """Shards or slices along any dimension, each held by several workers."""
    copies = draw(st.sampled_from([each for each in range(1, workers + 1) if not workers % each]))
    if not shape:
        return lambda worker: Extent.everything(()).among(workers, worker)
    at = draw(st.integers(0, len(shape) - 1))
    inner = sorted(draw(st.integers(0, shape[at])) for _ in range(workers // copies - 1))
    cuts = [0, *inner, shape[at]]
    return lambda worker: rows_of(shape, at, cuts, worker, copies)


@st.composite
def node_lists(draw: st.DrawFn, workers: int) -> list[list[int]]:
    """Any workers on any nodes."""
    nodes = [draw(st.integers(0, 3)) for _ in range(workers)]
    return [
        [worker for worker in range(workers) if nodes[worker] == node]
        for node in sorted(set(nodes))
    ]


SHAPES = st.lists(st.integers(0, 6), max_size=3).map(tuple)
NAMES = ["model/a", "model/b", "optimizer/a/m", "optimizer/b/m"]


@given(data=st.data(), before=st.integers(1, 9), after=st.integers(1, 4))
@settings(max_examples=40)
def test_any_layout_saves_and_any_other_reads(data: st.DataObject, before: int, after: int) -> None:
    shapes = {name: data.draw(SHAPES) for name in NAMES}
    tensors = whole(shapes, 20)
    divided = {name: data.draw(divisions(shape, before)) for name, shape in shapes.items()}
    with a_folder() as folder:
        writers = Workers(folder, data.draw(node_lists(before)))
        writers.save(20, tensors, divided)
        assert not writers.told.flaws
        saved, told = newest(folder, after)
        assert saved is not None
        assert not told.flaws
        assert saved.manifest.metrics == {"loss": 1 / 20}
        assert len(saved.manifest.scalars) == min(before, 2)
        assert {name: form.shape for name, form in saved.manifest.tensors.items()} == shapes
        for name, shape in shapes.items():
            division = data.draw(divisions(shape, after))
            for worker in range(after):
                extent = division(worker)
                found = read(saved, name, extent)
                for box, here in extent.parts:
                    at = tuple(slice(a, a + b) for a, b in zip(here, box.shape, strict=True))
                    assert torch.equal(found[at], tensors[name][box.slices])
        files = {path.name for path in (folder / NEWEST).glob("*.safetensors")}
        shares = [each for worker in range(after) for each, _ in saved.index.share(worker, after)]
        assert sorted(shares) == sorted(files)
        assert isinstance(saved.manifest, Root)
        assert saved.manifest.total_bytes == sum(
            (folder / NEWEST / each).stat().st_size for each in files
        )


@given(data=st.data(), workers=st.integers(1, 9))
def test_every_worker_hands_in_to_one_that_waits_for_it(data: st.DataObject, workers: int) -> None:
    nodes = data.draw(node_lists(workers))
    found = {worker: duties(worker, nodes) for worker in range(workers)}
    awaited = {
        (len(found[other].groups), worker, other)
        for worker, each in found.items()
        for others in each.groups
        for other in others
    }
    handed = {(len(each.groups), each.parent, worker) for worker, each in found.items() if worker}
    assert {(level, parent, worker) for level, parent, worker in handed} == awaited
    assert found[0].parent is None


def test_a_worker_that_waits_to_join_has_no_duties_yet(tmp_path: Path) -> None:
    """It has no rank, and makes a saver as every worker does."""
    told = Told()
    saver = Saver(
        Folder(tmp_path), Saving(), worker=-1, nodes=[[0, 1]], attempt=0, on_saved=told.saved
    )
    saver.wait()
    assert saver.last is None


@pytest.mark.parametrize(
    ("placement", "nodes"),
    [
        (Placement(), [[0]]),
        (Placement(workers=5, local_workers=2), [[0, 1], [2, 3], [4]]),
        (Placement(rank=-1, workers=4, local_workers=4), [[0, 1, 2, 3]]),
    ],
)
def test_the_ranks_of_each_node(placement: Placement, nodes: list[list[int]]) -> None:
    assert placement.ranks_by_node == nodes


FIVE: dict[str, tuple[int, ...]] = {
    "model/weight": (11, 3), "model/bias": (11,), "model/scale": (), "optimizer/weight/m": (11, 3)
}  # fmt: skip
NODES = [[0, 1], [2], [3, 4]]


def divided() -> dict[str, Division]:
    """Shards of uneven size on five workers; the last of the vector's has nothing."""
    cuts = {"model/weight": [0, 3, 5, 7, 9, 11], "model/bias": [0, 4, 8, 10, 11, 11]}

    def division(name: str, shape: tuple[int, ...]) -> Division:
        if not shape:
            return lambda worker: Extent.everything(()).among(5, worker)
        return lambda worker: rows_of(shape, 0, cuts.get(name, cuts["model/weight"]), worker, 1)

    return {name: division(name, shape) for name, shape in FIVE.items()}


def two(folder: Path) -> None:
    """Checkpoints of steps 10 and 20."""
    workers = Workers(folder, NODES)
    for step in (10, 20):
        workers.save(step, whole(FIVE, step), divided())
    assert not workers.told.flaws


def check(folder: Path, step: int, workers: int = 3) -> str:
    """Check that this is the newest good checkpoint; return what is wrong with a newer one."""
    saved, told = newest(folder, workers)
    assert saved is not None
    assert saved.manifest.step == step
    for name, tensor in whole(FIVE, step).items():
        assert torch.equal(read(saved, name, Extent.everything(FIVE[name])), tensor)
    return told.flaws.get(20, "")


def test_the_files_of_a_checkpoint(tmp_path: Path) -> None:
    """A page for each node, one about two of them, and the root; nothing that was handed in."""
    two(tmp_path / "checkpoints")
    names = {path.name for path in (tmp_path / "checkpoints" / NEWEST).iterdir()}
    pages = {name for name in names if name.startswith("manifest")}
    assert pages == {
        MANIFEST, SEAL, "manifest-0-00000.json", "manifest-0-00002.json", "manifest-0-00003.json",
        "manifest-1-00000.json", "manifest-1-00003.json",
    }  # fmt: skip
    assert all(name.endswith(".safetensors") for name in names - pages)
    root = Root.model_validate_json((tmp_path / "checkpoints" / NEWEST / MANIFEST).read_bytes())
    assert len(root.page.pages) == 2


def test_structures_are_stored_once(tmp_path: Path) -> None:
    """Eight workers with a row each have one structure; their pages have no names."""
    shapes: dict[str, tuple[int, ...]] = {f"model/layer.{each}": (8, 2) for each in range(20)}
    rows: dict[str, Division] = {
        name: lambda worker: rows_of((8, 2), 0, list(range(9)), worker, 1) for name in shapes
    }
    workers = Workers(tmp_path / "checkpoints", [[0, 1], [2, 3], [4, 5], [6, 7]])
    workers.save(20, whole(shapes, 20), rows)
    folder = tmp_path / "checkpoints" / NEWEST
    (structure,) = Root.model_validate_json((folder / MANIFEST).read_bytes()).structures.values()
    assert len(structure.kinds) == 1
    pages = [path.read_text() for path in folder.glob("manifest-*.json")]
    assert len(pages) == 6
    assert not any("layer" in page for page in pages)


def test_a_worker_reads_the_pages_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, opened = tmp_path / "checkpoints", list[str]()
    two(folder)
    reading = Folder.reading

    def counted(self: Folder, step: int, name: str, most_bytes: int) -> Any:
        opened.append(name)
        return reading(self, step, name, most_bytes)

    monkeypatch.setattr(Folder, "reading", counted)
    saved = saved_at(Folder(folder), 20)
    read(saved, "model/weight", rows_of((11, 3), 0, [0, 3, 11], 0, 1))
    assert [name for name in opened if name.startswith("manifest")] == [
        SEAL, MANIFEST, "manifest-1-00000.json", "manifest-0-00000.json"
    ]  # fmt: skip
    assert opened[-1].startswith("model-00000")


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "checkpoints"
    two(folder)
    return folder


@given(data=st.data())
@settings(max_examples=150)
def test_any_damage_is_found(data: st.DataObject, saved_once: Path) -> None:
    names = sorted(path.name for path in (saved_once / NEWEST).iterdir())
    path = saved_once / NEWEST / data.draw(st.sampled_from(names))
    contents = path.read_bytes()
    try:
        match data.draw(st.sampled_from(["flip", "cut", "remove", "swap", "grow"])):
            case "flip":
                changed = bytearray(contents)
                changed[data.draw(st.integers(0, len(contents) - 1))] ^= 1 << data.draw(
                    st.integers(0, 7)
                )
                path.write_bytes(changed)
            case "cut":
                os.truncate(path, data.draw(st.integers(0, len(contents) - 1)))
            case "grow":
                path.write_bytes(contents + b" ")
            case "swap":
                path.write_bytes((saved_once / "step-0000000010" / path.name).read_bytes())
            case "remove":
                path.unlink()
        flaw = check(saved_once, 10, data.draw(st.integers(1, 7)))
        assert path.name.removesuffix(".sha256") in flaw
        (saved_once / f"damaged-{NEWEST}").rename(saved_once / NEWEST)
    finally:
        place = saved_once / NEWEST / path.name
        place.unlink(missing_ok=True)
        place.write_bytes(contents)
        place.chmod(0o600)


def test_a_failure_below_names_its_worker(tmp_path: Path) -> None:
    """Through two other workers, worker 0 learns of a worker that cannot write."""
    folder = tmp_path / "checkpoints"
    workers = Workers(folder, NODES)
    odd = whole(FIVE, 10)
    for worker, saver in enumerate(workers.savers):
        snapshot = workers.snapshot(worker, 10, odd, divided())
        if worker == 4:
            piece = snapshot.sections["model"][0]
            snapshot.sections["model"][0] = type(piece)(
                piece.name, piece.whole, piece.box, piece.tensor.to(torch.complex64)
            )
        saver.save(snapshot)
    for saver in workers.savers:
        saver.wait()
    assert workers.told.flaws[10].startswith("worker 4: model/weight is of type complex64")
    assert list(folder.iterdir()) == []
    workers.save(20, whole(FIVE, 20), divided())
    check(folder, 20)


def test_pieces_that_overlap_commit_nothing(tmp_path: Path) -> None:
    everything: Division = lambda worker: Extent.everything((4, 3))  # noqa: E731
    workers = Workers(tmp_path / "checkpoints", [[0], [1]])
    workers.save(10, whole({"model/w": (4, 3)}, 10), {"model/w": everything})
    assert "pieces do not hold each element of every tensor once" in workers.told.flaws[10]
    assert list((tmp_path / "checkpoints").iterdir()) == []


class Died(BaseException):
    """The process is killed here; nothing that cleans up after errors runs."""


class Killed:
    """Kills everything at the n-th file operation below a folder."""

    def __init__(self) -> None:
        self.folder, self.left, self.dead = "", 0, False
        self._own = threading.Lock()
        sys.addaudithook(self._hear)  # stays as long as the process, and does nothing

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.folder or not event.startswith(("open", "os.")) or not arguments:
            return
        if self.folder not in str(arguments[0]):
            return
        with self._own:
            self.left -= 1
            self.dead = self.dead or self.left < 0
        if self.dead:
            raise Died

    @contextmanager
    def after(self, operations: int, folder: Path) -> Iterator[None]:
        """Kill after so many operations within this block."""
        self.folder, self.left, self.dead = str(folder), operations, False
        try:
            yield
        finally:
            self.folder = ""


@pytest.fixture(scope="module")
def killed() -> Killed:
    return Killed()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_kill_between_any_two_file_operations(tmp_path: Path, killed: Killed) -> None:
    """Three workers on two nodes; the checkpoint before stays, or the new one is whole."""
    cuts = {"model/weight": [0, 4, 8, 11], "model/bias": [0, 4, 8, 11]}
    rows: dict[str, Division] = {
        "model/weight": lambda worker: rows_of((11, 3), 0, cuts["model/weight"], worker, 1),
        "model/bias": lambda worker: rows_of((11,), 0, cuts["model/bias"], worker, 1),
    }
    shapes = {name: FIVE[name] for name in rows}
    folder = tmp_path / "checkpoints"
    Workers(folder, [[0, 1], [2]]).save(10, whole(shapes, 10), rows)
    found = []
    for operations in count():
        workers = Workers(folder, [[0, 1], [2]], attempt=1)
        with killed.after(operations, folder):
            workers.save(20, whole(shapes, 20), rows)
        saved, told = newest(folder)
        assert saved is not None
        assert not told.flaws
        step = saved.manifest.step
        found.append(step)
        for name, tensor in whole(shapes, step).items():
            assert torch.equal(read(saved, name, Extent.everything(shapes[name])), tensor)
        if not killed.dead:
            break
        Folder(folder).clear_drafts()
        if step == 20:
            shutil.rmtree(folder / NEWEST)
    assert len(found) > 40
    assert all(a <= b for a, b in pairwise(found))
    assert found[-1] == 20
