"""Files by path, glob or URL, on any file system that fsspec supports; remote ones are cached."""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from paceline.data.cache import Cache
from paceline.specs import PacelineError

_REACH = "check that it can be reached from this node, and the credentials in storage_options"

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class File:
    """A file and its version when the dataset was opened."""

    url: str
    size_bytes: int
    version: str
    """Changes with the content, as far as its file system reports it."""
    remote: bool

    @property
    def name(self) -> str:
        """Name in the cache: a changed file has another one."""
        return f"{self.url} {self.size_bytes} {self.version}"


class Files:
    """The files of paths, globs or URLs, sorted by name within each."""

    def __init__(
        self, paths: Paths, cache: Cache | None, storage_options: Mapping[str, Any] | None
    ) -> None:
        self.cache = cache or Cache()
        self._options = dict(storage_options or {})
        self._systems: dict[int, Any] = {}
        each = [paths] if isinstance(paths, str | Path) else paths
        self._files = [file for path in each for file in self._listed(str(path))]
        if not self._files:
            raise PacelineError("no path was given to read from", fix="give at least one")

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> File:
        return self._files[number]

    @property
    def remote(self) -> bool:
        """Whether any of them must be fetched."""
        return any(file.remote for file in self._files)

    def open(self, number: int) -> BinaryIO:
        """Open a file that can be memory-mapped; fetch it first if it is remote."""
        file = self._files[number]
        if file.remote:
            return self.cache.open(file.name, file.size_bytes, partial(self._fetch, file))
        return Path(LocalFileSystem._strip_protocol(file.url)).open("rb")

    def fetch(self, number: int) -> None:
        """Fetch a file, unless another process is fetching it."""
        file = self._files[number]
        if file.remote:
            self.cache.bring(file.name, file.size_bytes, partial(self._fetch, file), wait=False)

    def stream(self, number: int) -> Any:
        """Open a file in place, to read parts of it."""
        system, path = self._system(self._files[number].url)
        return system.open(path, "rb")

    def _listed(self, pattern: str) -> list[File]:
        try:
            system, path = self._system(pattern)
        except (ImportError, ValueError) as error:
            raise PacelineError(
                f"{pattern} cannot be read: {error}",
                fix="install the missing package; for S3: pip install 'paceline[s3]'",
            ) from error
        try:
            found = system.glob(path, detail=True)
        except FileNotFoundError:
            found = {}
        except Exception as error:  # every file system has its own errors
            raise PacelineError(f"{pattern} cannot be listed: {error}", fix=_REACH) from error
        files = [
            File(
                url=system.unstrip_protocol(path),
                size_bytes=info["size"],
                version=_version(info),
                remote=not isinstance(system, LocalFileSystem),
            )
            for path, info in sorted(found.items())
            if info["type"] == "file"
        ]
        if not files:
            raise PacelineError(f"{pattern} names no file", fix="check the path and the pattern")
        return files

    def _system(self, url: str) -> tuple[Any, str]:
        """Return this process's file system for a URL, and the path in it."""
        system, path = fsspec.core.url_to_fs(url, **self._options)
        # Kept, so that a loader process does not drop and close a file system inherited by fork:
        # with s3fs, the parent's transfers then hung until they timed out, in 4 of 7 tries.
        self._systems[id(system)] = system
        return system, path

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_systems": {}}

    def _fetch(self, file: File, path: Path) -> None:
        system, source = self._system(file.url)
        try:
            system.get_file(source, str(path))
        except Exception as error:  # every file system has its own errors
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise
            raise PacelineError(f"{file.url} cannot be fetched: {error}", fix=_REACH) from error
        if path.stat().st_size != file.size_bytes:
            raise PacelineError(
                f"{file.url} had {file.size_bytes:,} bytes when the training began, and has now"
                f" {path.stat().st_size:,}",
                fix="start again, and do not change shards during a training",
            )


def _version(info: Mapping[str, Any]) -> str:
    known = (info.get(key) for key in ("ETag", "etag", "LastModified", "mtime", "created"))
    return str(next((value for value in known if value is not None), ""))
