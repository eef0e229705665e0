"""Remote files, fetched once per node and kept within a size limit.

A file is written to a part file and renamed. The lock is on the part file, so the kernel releases
it when its process dies, and only cached files remain.
"""

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

from paceline.specs import PacelineError
from paceline.specs.owned_files import make_folder, open_owned, read_bounded, write_owned

_GIGABYTE = 10**9
_MOST_KEPT_BYTES = 256 << 20
"""Maximum size of a file's metadata: that of some million samples in one shard."""


def _default_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"


@dataclass(frozen=True)
class Cache:
    """A folder that the processes of a node share, best on a local disk.

    An open file stays readable after its eviction; it takes its space until it is closed.
    """

    folder: Path = field(default_factory=_default_folder)
    limit_bytes: int = 100 * _GIGABYTE

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder).absolute())

    def open(self, name: str, size_bytes: int, write: Callable[[Path], object]) -> BinaryIO:
        """Open a file for reading; `write` creates it if it is missing."""
        path = self._path(name)
        while True:
            try:
                file = path.open("rb")
            except FileNotFoundError:
                self.bring(name, size_bytes, write)
            else:
                os.utime(file.fileno())  # eviction is by least recent use
                return file

    def bring(
        self, name: str, size_bytes: int, write: Callable[[Path], object], *, wait: bool = True
    ) -> None:
        """Fetch the file if it is missing; without `wait`, leave it to a process that is
        fetching it."""
        self._check_size(size_bytes)
        path = self._path(name)
        part_path = path.with_name(f"{path.name}.{size_bytes}.part")
        self._make_folder(self.folder)
        while not path.exists():
            with self._alone():
                if path.exists():
                    return
                part = open_owned(part_path, "ab")
                mine = _lock(part, wait=False)
                room = mine and self._make_room()
                if mine and not room:
                    part_path.unlink()
            with part:
                if room:
                    self._write(part_path, path, size_bytes, write)
                elif not wait:
                    return
                elif mine:  # other processes' part files take all the room
                    time.sleep(0.05)
                else:
                    _lock(part, wait=True)

    def metadata(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return small metadata of a file, created once and never evicted."""
        path = self.folder / "metadata" / self._path(name).name
        locks = self.folder / "locks"
        for folder in (path.parent, locks):
            self._make_folder(folder)
        if not path.exists():
            with open_owned(locks / path.name[:2], "ab") as lock:
                _lock(lock, wait=True)
                if not path.exists():
                    write_owned(path, make())
        return read_bounded(path, _MOST_KEPT_BYTES)

    def check_room(self, sizes: list[int], at_once: int) -> None:
        """Refuse a limit under which files would be evicted before they are read."""
        needed = sum(sorted(sizes)[-at_once:])
        if needed > self.limit_bytes:
            raise PacelineError(
                f"{min(at_once, len(sizes))} shards are in use or read ahead at once and can take"
                f" {needed:,} bytes, but the cache {self.folder} is limited to"
                f" {self.limit_bytes:,}",
                fix=f"give Cache(limit_bytes={needed}) or more, or a smaller window",
            )

    def _make_folder(self, folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_folder(folder, share=False, exist_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / hashlib.blake2b(name.encode(), digest_size=16).hexdigest()

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self.limit_bytes:
            raise PacelineError(
                f"a shard has {size_bytes:,} bytes, but the cache {self.folder} is limited to"
                f" {self.limit_bytes:,}",
                fix=f"give Cache(limit_bytes={size_bytes}) or more, or write smaller shards",
            )

    def _write(
        self, part: Path, path: Path, expected_bytes: int, write: Callable[[Path], object]
    ) -> None:
        try:
            write(part)
            size = part.stat().st_size
            self._check_size(size)
            with self._alone():
                part.replace(path)
                if size > expected_bytes:
                    self._make_room(besides=path)
        except BaseException as error:
            part.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise PacelineError(
                    f"the disk of the cache {self.folder} is full, before its limit of"
                    f" {self.limit_bytes:,} bytes was reached",
                    fix="free some space there, or give a smaller limit_bytes",
                ) from error
            raise

    def _make_room(self, besides: Path | None = None) -> bool:
        """Evict files until all fit the limit, with part files at their final size."""
        written: list[tuple[float, int, Path]] = []
        total = 0
        for path in self.folder.iterdir():
            if path.suffix == ".part":
                total += _reserved(path)
            elif path.is_file() and path.name != "lock":
                status = path.stat()
                written.append((status.st_mtime, status.st_size, path))
                total += status.st_size
        for _, size, path in sorted(written):
            if total <= self.limit_bytes:
                break
            if path != besides:
                path.unlink()
                total -= size
        return total <= self.limit_bytes

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock: no other process claims, evicts or finishes a file."""
        with open_owned(self.folder / "lock", "ab") as lock:
            _lock(lock, wait=True)
            yield


def _reserved(part: Path) -> int:
    """Return the final size of a part file; remove it if its writer has died."""
    with part.open("rb") as file:
        if _lock(file, wait=False):
            part.unlink()
            return 0
    return int(part.name.split(".")[1])


def _lock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock a file until it is closed; False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
