"""Find the newest intact checkpoint. Every file is hashed before any data is loaded."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3
from pydantic import ValidationError

from paceline.checkpoints.manifest import (
    MANIFEST,
    MOST_MANIFEST_BYTES,
    SEAL,
    SEAL_BYTES,
    Manifest,
    digest_of,
)
from paceline.checkpoints.storage import Damaged, Storage
from paceline.specs import PacelineError

HASHING_THREADS = 4
"""Files to hash in parallel: some are hashed while others wait for the disk."""

_CHUNK_BYTES = 1 << 20


def manifest_of(storage: Storage, step: int) -> Manifest:
    """Return a checkpoint's manifest; raise Damaged if its hash or contents are wrong."""
    seal = _contents(storage, step, SEAL, SEAL_BYTES)
    text = _contents(storage, step, MANIFEST, MOST_MANIFEST_BYTES)
    if digest_of(text) != seal:
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
) -> Manifest | None:
    """Return the manifest of the newest intact checkpoint; None if there are no checkpoints.

    All workers call this together, and each verifies some of the files. A damaged checkpoint is
    reported and excluded, then the one before it is tried.
    """
    steps = storage.steps()
    for step in reversed(steps):
        manifest = _verified(storage, step, worker, workers, on_damage)
        if all_agree(manifest is not None):
            return manifest
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
) -> Manifest:
    """Return the manifest of a step's checkpoint of another run, which is left as it is.

    All workers call this together, and each verifies some of the files.
    """
    manifest = _verified(storage, step, worker, workers, on_damage)
    if not all_agree(manifest is not None):
        raise PacelineError(
            f"the checkpoint of step {step} that this run starts from is missing or damaged",
            fix="look after the disk, or start from another checkpoint",
        )
    assert manifest is not None
    return manifest


def _verified(
    storage: Storage, step: int, worker: int, workers: int, on_damage: Callable[[int, str], None]
) -> Manifest | None:
    """Return a checkpoint's manifest if this worker finds no damage in its part of the files."""
    try:
        manifest = manifest_of(storage, step)
        _check_share(storage, step, manifest, sorted(manifest.files)[worker::workers])
    except Damaged as error:
        on_damage(step, str(error))
        return None
    return manifest


def _check_share(storage: Storage, step: int, manifest: Manifest, names: list[str]) -> None:
    with ThreadPoolExecutor(HASHING_THREADS) as threads:
        for _ in threads.map(lambda name: check_file(storage, step, manifest, name), names):
            pass


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
