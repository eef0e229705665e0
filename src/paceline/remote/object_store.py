"""Objects under one URL, through fsspec, which is configured by the environment."""

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.specs.errors import PacelineError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


@dataclass(frozen=True)
class StoredObject:
    """An object's size, and a stamp that changes when the object does."""

    size: int
    stamp: str


class ObjectStore:
    """The objects under one URL. Every failure of the store is an `OSError`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = file_system_at(url, f"the run's files were to be in {url}")

    def top(self) -> tuple[dict[str, StoredObject], list[str]]:
        """Return the objects that are in no folder, by name, and the names of the folders."""
        with _failing_as_os_error(self.url):
            self._files.invalidate_cache()
            try:
                found = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}, []
        folders = [self._name(each["name"]) for each in found if each["type"] == "directory"]
        files = {each["name"]: each for each in found if each["type"] == "file"}
        return self._objects(files), folders

    def list(self, folder: str) -> dict[str, StoredObject]:
        """Return the objects in a folder at any depth, by name."""
        with _failing_as_os_error(self.url):
            self._files.invalidate_cache()
            try:
                found = self._files.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
        return self._objects(found)

    def read(self, name: str) -> bytes:
        """Return an object's contents; raise `FileNotFoundError` if there is none."""
        with _failing_as_os_error(self.url):
            contents: bytes = self._files.cat_file(self._path(name))
            return contents

    def write(self, name: str, contents: bytes) -> None:
        """Write an object; readers see the old or the new one."""
        with _failing_as_os_error(self.url, missing="there is no such bucket"):
            self._files.pipe_file(self._path(name), contents)

    def create(self, name: str, contents: bytes) -> bool:
        """Write an object; return False if there is one and the store refuses to replace it."""
        with _failing_as_os_error(self.url, missing="there is no such bucket"):
            try:
                self._files.pipe_file(self._path(name), contents, mode="create")
            except FileExistsError:
                return False
        return True

    def upload(self, name: str, file: Path) -> None:
        """Write a file's contents to an object; raise `FileNotFoundError` if the file is gone."""
        file.stat()
        with _failing_as_os_error(self.url, missing="there is no such bucket"):
            self._files.put_file(str(file), self._path(name))

    def download(self, name: str, file: Path) -> None:
        """Write an object's contents to a file."""
        with _failing_as_os_error(self.url):
            self._files.get_file(self._path(name), str(file))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects that exist."""
        for name in names:
            with _failing_as_os_error(self.url):
                self._files.invalidate_cache()
                try:
                    self._files.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _name(self, path: str) -> str:
        return path[len(self._root) :].strip("/")

    def _objects(self, found: dict[str, Any]) -> dict[str, StoredObject]:
        named = {self._name(path): about for path, about in found.items()}
        return {
            name: StoredObject(int(about["size"]), _stamp(about)) for name, about in named.items()
        }


def file_system_at(url: str, purpose: str) -> "tuple[AbstractFileSystem, str]":
    """Return the file system of a URL, and the path in it; `purpose` begins the error message."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 -- most commands start without it

        files, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise PacelineError(
            f"{purpose}, but: {error}",
            fix="install what opens such URLs (`pip install paceline[s3]` for s3://)",
        ) from None
    return files, path.rstrip("/")


def is_url(place: str | Path) -> bool:
    """Return whether a run's place is a URL rather than a folder's path."""
    return "://" in str(place)


def _stamp(about: dict[str, Any]) -> str:
    """Return what changes with an object, by the field that its kind of store has."""
    fields = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
    return " ".join(str(about[field]) for field in (*fields, "size") if field in about)


@contextmanager
def _failing_as_os_error(url: str, *, missing: str | None = None) -> Iterator[None]:
    """Raise what any kind of store raises as an `OSError`, which callers of files expect.

    `missing`: what it means if something does not exist, where that is no answer.
    """
    try:
        yield
    except FileNotFoundError:
        if missing is None:
            raise
        raise OSError(errno.EIO, missing, url) from None
    except OSError:
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", url) from error
