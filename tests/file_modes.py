"""Modes of files under a umask that the test chooses."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The modes of the files and folders in a folder, and of itself."""
    found = {str(path.relative_to(folder)): path.lstat().st_mode for path in folder.rglob("*")}
    found["."] = folder.stat().st_mode
    return {
        name: stat.S_IMODE(mode)
        for name, mode in found.items()
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    }


def with_bits(bits: int, folder: Path) -> dict[str, str]:
    return {name: f"{mode:04o}" for name, mode in modes(folder).items() if mode & bits}
