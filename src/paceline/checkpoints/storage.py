"""Checkpoint storage: a folder that all nodes share, or a bucket.

A checkpoint is written as a draft and becomes visible atomically. A folder uses a rename. A bucket
has no rename: the manifest's hash file is written last, and a checkpoint without it is ignored.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from paceline.checkpoints.manifest import MANIFEST, SEAL, seal_of
from paceline.specs import PacelineError
from paceline.specs.owned_files import make_folder, open_owned

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_GENERATION = re.compile(r"step-(\d{10})")


class Draft(Protocol):
    """A checkpoint that all workers are writing."""

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file; it is on disk when this returns."""

    def link(self, name: str, step: int) -> None:
        """Reuse an unchanged file from the checkpoint of another step."""

    def names(self) -> set[str]:
        """Return the names of the files written so far."""

    def read(self, name: str) -> bytes:
        """Return the contents of a small file."""

    def delete(self, name: str) -> None:
        """Delete a file."""

    def commit(self, manifest: bytes) -> None:
        """Commit the draft: make it a checkpoint, atomically."""

    def abandon(self) -> None:
        """Delete the draft."""


class Readable(Protocol):
    """Storage from which the files of a state can be read, by step and name."""

    def reading(self, step: int, name: str) -> AbstractContextManager[Path]:
        """Open a file for reading, for the duration of a block."""


class Storage(Readable, Protocol):
    """All checkpoints of a run."""

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""

    def draft(self, step: int, attempt: int) -> Draft:
        """Return the draft of a new checkpoint, shared by all workers of an attempt at the run."""

    def clear_drafts(self) -> None:
        """Delete unfinished drafts of earlier attempts."""

    def set_aside(self, step: int) -> None:
        """Exclude a damaged checkpoint from future restores, but keep its files for inspection."""

    def remove(self, step: int) -> None:
        """Delete a checkpoint."""


def opened(place: str | Path, *, share: bool = False) -> "Folder | Bucket":
    """Return the storage at a path or URL; `share`: let the group read a folder."""
    if "://" not in str(place) or str(place).startswith("file://"):
        return Folder(Path(str(place).removeprefix("file://")), share=share)
    return Bucket(str(place))


def _name(step: int) -> str:
    return f"step-{step:010d}"


def _found(names: Iterable[str]) -> list[int]:
    return sorted(int(match[1]) for name in names if (match := _GENERATION.fullmatch(name)))


class Folder:
    """Checkpoints in a folder."""

    def __init__(self, path: Path, *, share: bool = False) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        make_folder(path, share=share, exist_ok=True)

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""
        return _found(entry.name for entry in os.scandir(self._path))

    def draft(self, step: int, attempt: int) -> Draft:
        """Return the draft of a new checkpoint."""
        return _FolderDraft(self._path, step, attempt)

    def clear_drafts(self) -> None:
        """Delete unfinished drafts of earlier attempts."""
        for entry in os.scandir(self._path):
            if entry.name.startswith((".draft-", ".gone-")):
                shutil.rmtree(entry.path, ignore_errors=True)

    @contextmanager
    def reading(self, step: int, name: str) -> Iterator[Path]:
        """Open a file for reading, for the duration of a block."""
        yield self._path / _name(step) / name

    def set_aside(self, step: int) -> None:
        """Exclude a damaged checkpoint from future restores; keep only the last damaged one."""
        for old in self._path.glob("damaged-*"):
            shutil.rmtree(old, ignore_errors=True)
        (self._path / _name(step)).rename(self._path / f"damaged-{_name(step)}")

    def remove(self, step: int) -> None:
        """Delete a checkpoint. Hide it first, so that no worker restores a partial one."""
        gone = self._path / f".gone-{_name(step)}"
        (self._path / _name(step)).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


class _FolderDraft:
    def __init__(self, parent: Path, step: int, attempt: int) -> None:
        self._parent, self._step = parent, step
        self._path = parent / f".draft-{_name(step)}-{attempt}"
        make_folder(self._path, exist_ok=True)
        if self._path.is_symlink():
            raise PacelineError(
                f"{self._path} leads elsewhere: somebody has put a link in its place",
                fix="remove it, and let nobody else write to where checkpoints are",
            )

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        # Write under a temporary name: a worker that waits for this file must not see a partial
        # one.
        unfinished = self._path / f".{name}"
        unfinished.unlink(missing_ok=True)
        with open_owned(unfinished, "xb") as file:  # never follow a link that someone placed there
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._path / name)

    def link(self, name: str, step: int) -> None:
        os.link(self._parent / _name(step) / name, self._path / name)

    def names(self) -> set[str]:
        with os.scandir(self._path) as entries:
            return {entry.name for entry in entries}

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def commit(self, manifest: bytes) -> None:
        self.write(MANIFEST, [manifest])
        self.write(SEAL, [seal_of(manifest)])
        _sync_folder(self._path)
        self._path.rename(self._parent / _name(self._step))
        _sync_folder(self._parent)

    def abandon(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Bucket:
    """Checkpoints in an object store, through fsspec, which is configured by the environment."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 -- most runs start without it

            self._files, path = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise PacelineError(
                f"checkpoints were to go to {url}, but: {error}",
                fix="install what opens such URLs (`pip install paceline[s3]` for s3://)",
            ) from None
        self._path = path.rstrip("/")

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""
        self._files.invalidate_cache()
        return _found(path.split("/")[-2] for path in self._files.glob(f"{self._path}/*/{SEAL}"))

    def draft(self, step: int, attempt: int) -> Draft:
        """Return the draft of a new checkpoint."""
        del attempt  # an attempt uses only the files that it wrote itself
        return _BucketDraft(self._files, self._path, step)

    def clear_drafts(self) -> None:
        """Delete unfinished drafts of earlier attempts."""
        complete = set(self.steps())
        with suppress(FileNotFoundError):
            for path in self._files.ls(self._path, detail=False):
                if set(_found([path.rstrip("/").split("/")[-1]])) - complete:
                    self._files.rm(path, recursive=True)

    @contextmanager
    def reading(self, step: int, name: str) -> Iterator[Path]:
        """Download a file to this node's disk for reading, for the duration of a block."""
        with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
            copy = Path(folder) / name
            self._files.get_file(f"{self._path}/{_name(step)}/{name}", str(copy))
            yield copy

    def set_aside(self, step: int) -> None:
        """Exclude a damaged checkpoint from future restores."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._path}/{_name(step)}/{SEAL}")

    def remove(self, step: int) -> None:
        """Delete a checkpoint, its hash file first."""
        self.set_aside(step)
        self._files.rm(f"{self._path}/{_name(step)}", recursive=True)


class _BucketDraft:
    def __init__(self, files: "AbstractFileSystem", parent: str, step: int) -> None:
        self._files, self._parent = files, parent
        self._path = f"{parent}/{_name(step)}"

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        with self._files.open(f"{self._path}/{name}", "wb") as file:
            for chunk in chunks:
                file.write(chunk)

    def link(self, name: str, step: int) -> None:
        self._files.copy(f"{self._parent}/{_name(step)}/{name}", f"{self._path}/{name}")

    def names(self) -> set[str]:
        self._files.invalidate_cache()
        with suppress(FileNotFoundError):
            return {path.split("/")[-1] for path in self._files.ls(self._path, detail=False)}
        return set()

    def read(self, name: str) -> bytes:
        found: bytes = self._files.cat_file(f"{self._path}/{name}")
        return found

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._path}/{name}")

    def commit(self, manifest: bytes) -> None:
        self.write(MANIFEST, [manifest])
        self.write(SEAL, [seal_of(manifest)])

    def abandon(self) -> None:
        with suppress(FileNotFoundError):
            self._files.rm(self._path, recursive=True)
