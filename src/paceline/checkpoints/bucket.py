"""Checkpoints in an object store.

A bucket has no rename: the manifest's hash file is written last, and a checkpoint without it is
ignored.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.checkpoints.manifest import MANIFEST, SEAL, digest_of
from paceline.checkpoints.storage import Damaged, Draft, checked_size, step_name, steps_among
from paceline.remote.object_store import file_system_at

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_RANGE_BYTES = 16 << 20
"""Bytes to request from a bucket at a time. They are in memory, once for each hashing thread."""


class Bucket:
    """Checkpoints in an object store, through fsspec, which is configured by the environment."""

    def __init__(self, url: str) -> None:
        self._files, self._path = file_system_at(url, f"checkpoints were to go to {url}")

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""
        self._files.invalidate_cache()
        return steps_among(
            path.split("/")[-2] for path in self._files.glob(f"{self._path}/*/{SEAL}")
        )

    def draft(self, step: int, attempt: int) -> Draft:
        """Return the draft of a new checkpoint."""
        del attempt  # an attempt uses only the files that it wrote itself
        return _BucketDraft(self._files, self._path, step)

    def clear_drafts(self) -> None:
        """Delete unfinished drafts of earlier attempts."""
        complete = set(self.steps())
        with suppress(FileNotFoundError):
            for path in self._files.ls(self._path, detail=False):
                if set(steps_among([path.rstrip("/").split("/")[-1]])) - complete:
                    self._files.rm(path, recursive=True)

    @contextmanager
    def reading(self, step: int, name: str, most_bytes: int) -> Iterator[Path]:
        """Download a file to this node's disk for reading, for the duration of a block."""
        with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
            copy, path = Path(folder) / name, f"{self._path}/{step_name(step)}/{name}"
            with copy.open("wb") as file:
                file.writelines(_ranges(self._files, path, most_bytes))
            yield copy

    def set_aside(self, step: int) -> None:
        """Exclude a damaged checkpoint from future restores."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._path}/{step_name(step)}/{SEAL}")

    def remove(self, step: int) -> None:
        """Delete a checkpoint, its hash file first."""
        self.set_aside(step)
        self._files.rm(f"{self._path}/{step_name(step)}", recursive=True)


class _BucketDraft:
    def __init__(self, files: "AbstractFileSystem", parent: str, step: int) -> None:
        self._files, self._parent = files, parent
        self._path = f"{parent}/{step_name(step)}"

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        with self._files.open(f"{self._path}/{name}", "wb") as file:
            for chunk in chunks:
                file.write(chunk)

    def link(self, name: str, step: int) -> None:
        self._files.copy(f"{self._parent}/{step_name(step)}/{name}", f"{self._path}/{name}")

    def names(self, folder: str) -> set[str]:
        self._files.invalidate_cache()
        with suppress(FileNotFoundError):
            found = self._files.ls(f"{self._path}/{folder}", detail=False)
            return {path.split("/")[-1] for path in found}
        return set()

    def read(self, name: str, most_bytes: int) -> bytes:
        return b"".join(_ranges(self._files, f"{self._path}/{name}", most_bytes))

    def clear(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm(f"{self._path}/{folder}", recursive=True)

    def commit(self, manifest: bytes) -> None:
        self.write(MANIFEST, [manifest])
        self.write(SEAL, [digest_of(manifest)])

    def abandon(self) -> None:
        with suppress(FileNotFoundError):
            self._files.rm(self._path, recursive=True)


def _ranges(files: "AbstractFileSystem", path: str, most_bytes: int) -> Iterator[bytes]:
    """Yield an object's contents, as many bytes as it had at first and no more."""
    name = path.rpartition("/")[2]
    try:
        found = files.info(path)
    except FileNotFoundError:
        raise Damaged(f"{name} is missing") from None
    size = checked_size(name, found["size"] if found["type"] == "file" else None, most_bytes)
    for begin in range(0, size, _RANGE_BYTES):
        yield files.cat_file(path, start=begin, end=min(begin + _RANGE_BYTES, size))
