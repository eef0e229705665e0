"""Which files of a training's folder are its code, and not its data or its secrets."""

import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

CODE = frozenset({".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"})
SETTINGS = frozenset({".toml", ".yaml", ".yml", ".json", ".ini", ".cfg", ".jinja"})
SECRET_WORDS = ("secret", "credential", "passw", "token", "private", "key", "auth")
"""Words in the names of settings that may be secrets: such files are not copied."""

MOST_FILES = 1000
MOST_FILE_BYTES = 1 << 20
MOST_BYTES = 20 << 20
MOST_ENTRIES = 2000
"""Entries of a folder below the training's own; a folder with more holds data."""
MOST_SEEN = 10_000
"""Entries in all folders."""


@dataclass
class CodeFiles:
    """Code of a training's folder, by paths relative to it."""

    files: dict[Path, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Code that exceeds a limit."""

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(map(len, self.files.values()))


def find_code(train: Path) -> CodeFiles:
    """Return the code in the folder of a training's file; near files first, up to the limits."""
    found, folder, seen = CodeFiles(), train.parent, 0
    _read(train, folder, found)
    waiting = deque([folder])
    while waiting:
        here = waiting.popleft()
        entries = _entries(here, None if here == folder else MOST_ENTRIES)
        if entries is None:
            continue
        seen += len(entries)
        if seen > MOST_SEEN and here != folder:
            found.left_out.append(f"{here.relative_to(folder)}/ and other folders")
            break
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if not _is_foreign(path):
                    waiting.append(path)
            elif is_code(path) and path != train:
                _read(path, folder, found)
    return found


def is_code(path: Path) -> bool:
    """Return whether a file is code, or settings that are no secret, by its name."""
    if path.name.startswith("."):
        return False
    secret = any(word in path.name.lower() for word in SECRET_WORDS)
    return path.suffix in CODE or (path.suffix in SETTINGS and not secret)


def _entries(folder: Path, most: int | None) -> list[os.DirEntry[str]] | None:
    """Return a folder's entries by name; None if it has too many, or cannot be read."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(entry)
                if most is not None and len(found) > most:
                    return None
    except OSError:
        return None
    return sorted(found, key=lambda entry: entry.name)


def _is_foreign(folder: Path) -> bool:
    """Return whether a folder holds no code of the user: hidden, an environment, a run."""
    if folder.name.startswith(".") or folder.name in ("__pycache__", "node_modules"):
        return True
    return any((folder / name).exists() for name in ("pyvenv.cfg", "conda-meta", "job.toml"))


def _read(path: Path, folder: Path, found: CodeFiles) -> None:
    name = path.relative_to(folder)
    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            contents = file.read(MOST_FILE_BYTES + 1)
    except OSError:
        found.left_out.append(str(name))
        return
    room = len(found.files) < MOST_FILES and found.total_bytes + len(contents) <= MOST_BYTES
    if len(contents) > MOST_FILE_BYTES or not room:
        if path.suffix in CODE:  # a large file of settings is data
            found.left_out.append(str(name))
        return
    found.files[name] = contents
