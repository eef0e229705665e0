"""A copy of a run's folder on this machine, and what of it the store does not have yet."""

import fcntl
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from paceline.remote.file_kinds import (
    CHECKPOINTS,
    PART_BYTES,
    SIGNALS,
    FileKind,
    file_of,
    kind_of,
    object_of,
    part_of,
)
from paceline.remote.object_store import ObjectStore, StoredObject
from paceline.specs.owned_files import make_folder, open_owned

_Version = tuple[int, int, int]


@dataclass
class _Grown:
    """A growing file, as far as the store has it."""

    inode: int = 0
    size: int = 0
    parts: dict[int, str] = field(default_factory=dict)
    """Stamps of the parts that were downloaded."""


class RunCopy:
    """A run's folder on this machine, made like the store, and the store made like it."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self._folder, self._store = folder, store
        self._whole: dict[str, tuple[_Version, str]] = {}
        """Files that do not grow, as both sides have them: the file's version, the object's."""
        self._grown: dict[str, _Grown] = {}
        self._lock = threading.RLock()

    def sync(self, *, whole: bool = False, last: bool = False) -> None:
        """Push, then read the others' signals, or the `whole` run."""
        with self._lock:
            self.push(last=last)
            if whole:
                self.pull()
            self.pull_signals()

    def push(self, *, last: bool = False) -> None:
        """Write what has changed here to the store.

        An unfinished last line of a growing file waits, unless this is the `last` time.
        """
        with self._lock:
            found = self._files()
            for file, path in found.items():
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    if kind_of(file) is FileKind.GROWING:
                        self._push_growing(file, path, last=last)
                    else:
                        self._push_whole(file, path)
            for file in [each for each in self._whole if each not in found]:
                if kind_of(file) is FileKind.SIGNAL:
                    self._store.delete([object_of(file)])
                del self._whole[file]

    def push_growing(self, path: Path) -> None:
        """Write what one growing file has to the store; another process may push it, too."""
        with self._lock:
            self._push_growing(str(path.relative_to(self._folder)), path, last=False)

    def pull(self) -> None:
        """Make this copy like the store, but for checkpoints and for what has changed here."""
        self._take(self._stored())

    def pull_signals(self) -> None:
        """Read what other machines signal."""
        found = self._store.list(SIGNALS)
        self._take(found)
        signalled = {file_of(name)[0] for name in found}
        for file in [each for each in self._whole if kind_of(each) is FileKind.SIGNAL]:
            path = self._folder / file
            if file not in signalled and self._is_unchanged(file, path):
                path.unlink()
                del self._whole[file]

    def recognize(self) -> None:
        """Find out what both sides have, after another process of this machine has pulled."""
        stored: dict[str, int] = {}
        for name, found in self._stored().items():
            file, _ = file_of(name)
            stored[file] = stored.get(file, 0) + found.size
        for file, path in self._files().items():
            about = path.stat()
            if kind_of(file) is FileKind.GROWING:
                self._grown[file] = _Grown(about.st_ino, min(stored.get(file, 0), about.st_size))
            elif stored.get(file) == about.st_size:
                self._whole[file] = (_version(about), "")

    def _take(self, found: dict[str, StoredObject]) -> None:
        growing: dict[str, dict[int, StoredObject]] = {}
        for name, stored in found.items():
            file, number = file_of(name)
            kind = kind_of(file)
            if kind is FileKind.GROWING:
                growing.setdefault(file, {})[number] = stored
            elif kind is not FileKind.OWN:
                self._pull_whole(file, name, stored)
        for file, parts in growing.items():
            self._pull_growing(file, parts)

    def _stored(self) -> dict[str, StoredObject]:
        """Return all objects of the run but its checkpoints."""
        found, folders = self._store.top()
        for folder in folders:
            found |= self._store.list(folder) if folder != CHECKPOINTS else {}
        return found

    def _push_whole(self, file: str, path: Path) -> None:
        version = _version(path.stat())
        known = self._whole.get(file)
        if known is None or known[0] != version:
            self._store.upload(object_of(file), path)
            self._whole[file] = (version, "")

    def _push_growing(self, file: str, path: Path, *, last: bool) -> None:
        known = self._grown.setdefault(file, _Grown())
        with path.open("rb") as opened:
            # A worker also pushes its ledger: without the lock, an older part could come later.
            fcntl.flock(opened.fileno(), fcntl.LOCK_EX)
            about = os.fstat(opened.fileno())
            if about.st_ino != known.inode or about.st_size < known.size:  # it was begun anew
                later = range(1, -(-known.size // PART_BYTES))
                self._store.delete(part_of(file, number) for number in later)
                known.inode, known.size, known.parts = about.st_ino, 0, {}
            if about.st_size == known.size:
                return
            number = known.size // PART_BYTES
            opened.seek(number * PART_BYTES)
            while contents := opened.read(PART_BYTES):
                if len(contents) < PART_BYTES and not last:
                    contents = contents[: contents.rfind(b"\n") + 1]
                size = number * PART_BYTES + len(contents)
                if size > known.size:
                    self._store.write(part_of(file, number), contents)
                    known.size = size
                if len(contents) < PART_BYTES:
                    return
                number += 1

    def _pull_whole(self, file: str, name: str, stored: StoredObject) -> None:
        path = self._folder / file
        known = self._whole.get(file)
        if known is not None and (known[1] == stored.stamp or not self._is_unchanged(file, path)):
            return
        if known is not None and not known[1] and known[0][2] == stored.size:
            self._whole[file] = (known[0], stored.stamp)  # this machine's own
            return
        if known is None and path.exists():
            return  # this machine has just written it
        _make_parents(path, self._folder)
        draft = path.with_name(f".{path.name}-{os.getpid()}-pulled")
        try:
            open_owned(draft, "wb").close()  # with its mode, before it has contents
            self._store.download(name, draft)
            draft.rename(path)
        except FileNotFoundError:  # it was deleted meanwhile
            return
        finally:
            draft.unlink(missing_ok=True)
        self._whole[file] = (_version(path.stat()), stored.stamp)

    def _pull_growing(self, file: str, parts: dict[int, StoredObject]) -> None:
        known = self._grown.setdefault(file, _Grown())
        newer = [each for each in sorted(parts) if known.parts.get(each) != parts[each].stamp]
        if not newer:
            return
        path = self._folder / file
        if known.inode and not known.parts:
            return  # this machine writes it
        _make_parents(path, self._folder)
        with open_owned(path, "r+b" if path.exists() else "w+b") as opened:
            about = os.fstat(opened.fileno())
            if about.st_size == known.size:  # as the store had it: it may have been begun anew
                opened.truncate(newer[0] * PART_BYTES)
            for number in newer:
                try:
                    contents = self._store.read(part_of(file, number))
                except FileNotFoundError:  # it is being begun anew
                    return
                opened.seek(number * PART_BYTES)
                opened.write(contents)
                known.parts[number] = parts[number].stamp
                known.size = number * PART_BYTES + len(contents)
            known.inode = about.st_ino

    def _is_unchanged(self, file: str, path: Path) -> bool:
        """Return whether a file is as it was when both sides had the same."""
        with suppress(FileNotFoundError):
            return _version(path.stat()) == self._whole[file][0]
        return False

    def _files(self) -> dict[str, Path]:
        """Return the files here that a store has, by their paths in the folder."""
        found = {}
        for path, folders, names in os.walk(self._folder):
            inside = os.path.relpath(path, self._folder)
            if inside == ".":
                folders[:] = [each for each in folders if kind_of(each) is not FileKind.OWN]
            for name in names:
                file = name if inside == "." else f"{inside}/{name}"
                # Beside copied code lie links to all that the user's folder has.
                if kind_of(file) is not FileKind.OWN and not (Path(path) / name).is_symlink():
                    found[file] = Path(path) / name
        return found


def _version(about: os.stat_result) -> _Version:
    return about.st_ino, about.st_mtime_ns, about.st_size


def _make_parents(path: Path, folder: Path) -> None:
    for parent in reversed(path.relative_to(folder).parents[:-1]):
        make_folder(folder / parent, exist_ok=True)
