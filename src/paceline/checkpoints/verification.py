"""Find the newest intact checkpoint. Every file is hashed before any data is loaded."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3
from pydantic import BaseModel, ValidationError

from paceline.checkpoints.manifest import (
    MANIFEST,
    MOST_MANIFEST_BYTES,
    SEAL,
    SEAL_BYTES,
    FileRecord,
    digest_of,
)
from paceline.checkpoints.pages.format_1 import OldManifest, PieceList
from paceline.checkpoints.pages.page import (
    FORMAT,
    Page,
    PageEntry,
    Root,
    check_page,
    tensors_of,
)
from paceline.checkpoints.pages.page_index import PageIndex
from paceline.checkpoints.saved_state import SavedState
from paceline.checkpoints.storage import Damaged, Storage
from paceline.specs import PacelineError
from paceline.specs.base import problem_of

HASHING_THREADS = 4
"""Files to hash in parallel: some are hashed while others wait for the disk."""

_CHUNK_BYTES = 1 << 20


class NewerFormat(PacelineError):
    """A checkpoint that another version of Paceline wrote. It is not damaged."""


class _Format(BaseModel):
    """The part of a manifest that all formats have."""

    format: int


def saved_at(storage: Storage, step: int) -> SavedState:
    """Return the checkpoint of a step; raise Damaged if its root's hash or contents are wrong.

    Pages are read, and verified, when they are needed.
    """
    seal = _contents(storage, step, SEAL, SEAL_BYTES)
    text = _contents(storage, step, MANIFEST, MOST_MANIFEST_BYTES)
    if digest_of(text) != seal:
        raise Damaged(f"{MANIFEST} is not what was sealed: its SHA-256 differs from that in {SEAL}")
    try:
        found = _saved_state(storage, step, text)
    except ValidationError as error:
        raise Damaged(f"{MANIFEST} cannot be read: {problem_of(error.errors()[0])}") from None
    if found.manifest.step != step:
        raise Damaged(
            f"{MANIFEST} is of step {found.manifest.step}: it belongs to another checkpoint"
        )
    return found


def check_file(storage: Storage, step: int, name: str, record: FileRecord) -> None:
    """Hash one file of a checkpoint; raise Damaged if it differs from what was written."""
    with storage.reading(step, name, record.bytes) as path:
        size = path.stat().st_size
        if size != record.bytes:
            raise Damaged(f"{name} has {size} bytes of the {record.bytes} that were written")
        if _blake3(path, size) != record.blake3:
            raise Damaged(f"{name} has changed: its hash is not the one that was written")


def newest_good(
    storage: Storage,
    *,
    worker: int,
    workers: int,
    all_agree: Callable[[bool], bool],
    on_damage: Callable[[int, str], None],
) -> SavedState | None:
    """Return the newest intact checkpoint; None if there are no checkpoints.

    All workers call this together, and each verifies some of the files. A damaged checkpoint is
    reported and excluded, then the one before it is tried.
    """
    steps = storage.steps()
    for step in reversed(steps):
        saved = _verified(storage, step, worker, workers, on_damage)
        if all_agree(saved is not None):
            return saved
        if worker == 0:
            storage.set_aside(step)
    if steps:
        raise PacelineError(
            f"none of the {len(steps)} checkpoints of this run is as it was written",
            fix="look after the disk; to begin anew, start a new run",
        )
    return None


def good_at(
    storage: Storage,
    step: int,
    *,
    worker: int,
    workers: int,
    all_agree: Callable[[bool], bool],
    on_damage: Callable[[int, str], None],
) -> SavedState:
    """Return a step's checkpoint of another run, which is left as it is.

    All workers call this together, and each verifies some of the files.
    """
    saved = _verified(storage, step, worker, workers, on_damage)
    if not all_agree(saved is not None):
        raise PacelineError(
            f"the checkpoint of step {step} that this run starts from is missing or damaged",
            fix="look after the disk, or start from another checkpoint",
        )
    assert saved is not None
    return saved


def _verified(
    storage: Storage, step: int, worker: int, workers: int, on_damage: Callable[[int, str], None]
) -> SavedState | None:
    """Return a checkpoint if this worker finds no damage in its part of the pages and files."""
    try:
        saved = saved_at(storage, step)
        share = saved.index.share(worker, workers)
        with ThreadPoolExecutor(HASHING_THREADS) as threads:
            for _ in threads.map(lambda file: check_file(storage, step, *file), share):
                pass
    except Damaged as error:
        on_damage(step, str(error))
        return None
    return saved


def _saved_state(storage: Storage, step: int, text: bytes) -> SavedState:
    written = _Format.model_validate_json(text).format
    if written == 1:
        old = OldManifest.model_validate_json(text)
        return SavedState(old, PieceList(old), storage)
    if written != FORMAT:
        raise NewerFormat(
            f"the checkpoint of step {step} has format {written}, and this version of Paceline"
            f" reads formats 1 to {FORMAT}",
            fix="resume the run with the version that wrote it, or a newer one",
        )
    root = Root.model_validate_json(text)
    tensors = tensors_of(root.structures.values())
    check_page(root.page, root.structures, MANIFEST)

    def read(entry: PageEntry) -> Page:
        return _page(storage, step, root, entry)

    return SavedState(
        root.model_copy(update={"tensors": tensors}),
        PageIndex(root.structures, root.page, read),
        storage,
    )


def _page(storage: Storage, step: int, root: Root, entry: PageEntry) -> Page:
    """Return a page; raise Damaged if it is not what was written."""
    text = _contents(storage, step, entry.name, entry.bytes)
    if len(text) != entry.bytes or blake3(text).hexdigest() != entry.blake3:
        raise Damaged(f"{entry.name} has changed: its hash is not the one that was written")
    try:
        page = Page.model_validate_json(text)
    except ValidationError as error:
        raise Damaged(f"{entry.name} cannot be read: {problem_of(error.errors()[0])}") from None
    check_page(page, root.structures, entry.name)
    return page


def _contents(storage: Storage, step: int, name: str, most_bytes: int) -> bytes:
    with storage.reading(step, name, most_bytes) as path, path.open("rb") as file:
        return file.read(most_bytes)


def _blake3(path: Path, size: int) -> str:
    """Return the hash of a file's first `size` bytes: it may grow meanwhile."""
    digest = blake3()
    with path.open("rb", buffering=0) as file:
        while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.hexdigest()
