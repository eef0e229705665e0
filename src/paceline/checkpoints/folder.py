"""Checkpoints in a folder. A rename makes a draft visible."""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paceline.checkpoints.manifest import MANIFEST, SEAL, digest_of
from paceline.checkpoints.storage import Damaged, Draft, checked_size, step_name, steps_among
from paceline.specs import PacelineError
from paceline.specs.owned_files import check_owned, make_folder, open_owned, read_bounded


class Folder:
    """Checkpoints in a folder."""

    def __init__(self, path: Path, *, share: bool = False) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        make_folder(path, share=share, exist_ok=True)

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""
        return steps_among(entry.name for entry in os.scandir(self._path))

    def draft(self, step: int, attempt: int) -> Draft:
        """Return the draft of a new checkpoint."""
        return _FolderDraft(self._path, step, attempt)

    def clear_drafts(self) -> None:
        """Delete unfinished drafts of earlier attempts."""
        for entry in os.scandir(self._path):
            if entry.name.startswith((".draft-", ".gone-")):
                shutil.rmtree(entry.path, ignore_errors=True)

    @contextmanager
    def reading(self, step: int, name: str, most_bytes: int) -> Iterator[Path]:
        """Open a file of this user's own for reading, for the duration of a block."""
        path = self._path / step_name(step) / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not block
        except FileNotFoundError:
            raise Damaged(f"{name} is missing") from None
        try:
            found = os.fstat(descriptor)
            checked_size(name, found.st_size if stat.S_ISREG(found.st_mode) else None, most_bytes)
            check_owned(found, path, self._path)
            # The open file, which nobody can replace after these checks.
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def set_aside(self, step: int) -> None:
        """Exclude a damaged checkpoint from future restores; keep only the last damaged one."""
        for old in self._path.glob("damaged-*"):
            shutil.rmtree(old, ignore_errors=True)
        (self._path / step_name(step)).rename(self._path / f"damaged-{step_name(step)}")

    def remove(self, step: int) -> None:
        """Delete a checkpoint. Hide it first, so that no worker restores a partial one."""
        gone = self._path / f".gone-{step_name(step)}"
        (self._path / step_name(step)).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


class _FolderDraft:
    def __init__(self, parent: Path, step: int, attempt: int) -> None:
        self._parent, self._step = parent, step
        self._path = parent / f".draft-{step_name(step)}-{attempt}"
        make_folder(self._path, exist_ok=True)
        if self._path.is_symlink():
            raise PacelineError(
                f"{self._path} leads elsewhere: somebody has put a link in its place",
                fix="remove it, and let nobody else write to where checkpoints are",
            )

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        # Write under a temporary name: a worker that waits for this file must not see a partial
        # one.
        path = self._path / name
        if path.parent != self._path:
            make_folder(path.parent, exist_ok=True)
        unfinished = path.with_name(f".{path.name}")
        unfinished.unlink(missing_ok=True)
        with open_owned(unfinished, "xb") as file:  # never follow a link that someone placed there
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)

    def link(self, name: str, step: int) -> None:
        os.link(self._parent / step_name(step) / name, self._path / name)

    def names(self, folder: str) -> set[str]:
        with suppress(FileNotFoundError), os.scandir(self._path / folder) as entries:
            return {entry.name for entry in entries}
        return set()

    def read(self, name: str, most_bytes: int) -> bytes:
        return read_bounded(self._path / name, most_bytes, own=True)

    def clear(self, folder: str) -> None:
        shutil.rmtree(self._path / folder, ignore_errors=True)

    def commit(self, manifest: bytes) -> None:
        self.write(MANIFEST, [manifest])
        self.write(SEAL, [digest_of(manifest)])
        _sync_folder(self._path)
        self._path.rename(self._parent / step_name(self._step))
        _sync_folder(self._parent)

    def abandon(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
