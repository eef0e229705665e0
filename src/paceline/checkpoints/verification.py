"""Find the newest intact checkpoint. Every file is hashed before any data is loaded."""

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3
from pydantic import ValidationError

from paceline.checkpoints.manifest import MANIFEST, SEAL, Manifest, seal_of
from paceline.checkpoints.storage import Storage
from paceline.specs import PacelineError

HASHING_THREADS = 4
"""Files to hash in parallel: some are hashed while others wait for the disk."""

_CHUNK_BYTES = 1 << 20

MOST_MANIFEST_BYTES = 4 << 30
"""Maximum size of a manifest, which is read whole: hundreds of bytes per tensor piece."""


class Damaged(Exception):
    """A checkpoint differs from what was written; the message names the file and the cause."""


def manifest_of(storage: Storage, step: int) -> Manifest:
    """Return a checkpoint's manifest; raise Damaged if its hash or contents are wrong."""
    text, seal = (_small_file(storage, step, name) for name in (MANIFEST, SEAL))
    if seal_of(text) != seal:
        raise Damaged(f"{MANIFEST} is not what was sealed: its SHA-256 differs from that in {SEAL}")
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise Damaged(f"{MANIFEST} cannot be read: {error.errors()[0]['msg']}") from None
    if manifest.step != step:
        raise Damaged(f"{MANIFEST} is of step {manifest.step}: it belongs to another checkpoint")
    return manifest


def check_file(storage: Storage, step: int, manifest: Manifest, name: str) -> None:
    """Hash one file of a checkpoint; raise Damaged if it differs from what was written."""
    record = manifest.files[name]
    try:
        with storage.reading(step, name) as path:
            size = _size(path)
            if size != record.bytes:
                raise Damaged(f"{name} has {size} bytes of the {record.bytes} that were written")
            if _blake3(path) != record.blake3:
                raise Damaged(f"{name} has changed: its hash is not the one that was written")
    except FileNotFoundError:
        raise Damaged(f"{name} is missing") from None


def newest_good(
    storage: Storage,
    *,
    worker: int,
    workers: int,
    all_agree: Callable[[bool], bool],
    tell: Callable[[int, str], None],
) -> Manifest | None:
    """Return the manifest of the newest intact checkpoint; None if there are no checkpoints.

    All workers call this together, and each verifies some of the files. A damaged checkpoint is
    reported and excluded, then the one before it is tried.
    """
    steps = storage.steps()
    for step in reversed(steps):
        manifest, flaw = None, None
        try:
            manifest = manifest_of(storage, step)
            _check_share(storage, step, manifest, sorted(manifest.files)[worker::workers])
        except Damaged as error:
            flaw = str(error)
            tell(step, flaw)
        if all_agree(flaw is None):
            return manifest
        if worker == 0:
            storage.set_aside(step)
    if steps:
        raise PacelineError(
            f"none of the {len(steps)} checkpoints of this run is as it was written",
            fix="look after the disk; to begin anew, start a new run",
        )
    return None


def _check_share(storage: Storage, step: int, manifest: Manifest, names: list[str]) -> None:
    with ThreadPoolExecutor(HASHING_THREADS) as threads:
        for _ in threads.map(lambda name: check_file(storage, step, manifest, name), names):
            pass


def _small_file(storage: Storage, step: int, name: str) -> bytes:
    try:
        with storage.reading(step, name) as path:
            size = _size(path)
            if size > MOST_MANIFEST_BYTES:
                raise Damaged(f"{name} has {size} bytes: more than any that Paceline writes")
            return path.read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{name} is missing") from None


def _size(path: Path) -> int:
    """Return a file's size in bytes; refuse pipes and devices, which may never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Damaged(f"{path.name} is no file")
    return found.st_size


def _blake3(path: Path) -> str:
    digest = blake3()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
