"""Checkpoint storage: a folder that all nodes share, or a bucket.

A checkpoint is written as a draft and becomes visible atomically.
"""

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

_GENERATION = re.compile(r"step-(\d{10})")


class Damaged(Exception):
    """A checkpoint differs from what was written; the message names the file and the cause."""


class Draft(Protocol):
    """A checkpoint that all workers are writing."""

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file, or `folder/name` in a folder of the draft; it is on disk when this
        returns."""

    def link(self, name: str, step: int) -> None:
        """Reuse an unchanged file from the checkpoint of another step."""

    def names(self, folder: str) -> set[str]:
        """Return the names of the files written so far to a folder of the draft."""

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the contents of a file; refuse more than `most_bytes`."""

    def clear(self, folder: str) -> None:
        """Delete a folder of the draft."""

    def commit(self, manifest: bytes) -> None:
        """Commit the draft: make it a checkpoint, atomically."""

    def abandon(self) -> None:
        """Delete the draft."""


class Readable(Protocol):
    """Storage from which the files of a state can be read, by step and name."""

    def reading(self, step: int, name: str, most_bytes: int) -> AbstractContextManager[Path]:
        """Open a file for reading, for the duration of a block.

        Raise Damaged if it is missing, no file or larger than `most_bytes`, before any of it is
        read.
        """


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


def step_name(step: int) -> str:
    """Return the name of the folder of a step's checkpoint."""
    return f"step-{step:010d}"


def steps_among(names: Iterable[str]) -> list[int]:
    """Return the steps whose checkpoints have these names, oldest first."""
    return sorted(int(match[1]) for name in names if (match := _GENERATION.fullmatch(name)))


def checked_size(name: str, size: int | None, most_bytes: int) -> int:
    """Return a file's size; refuse one above `most_bytes`, and what is no file (None)."""
    if size is None:  # a pipe or a device may never end
        raise Damaged(f"{name} is no file")
    if size > most_bytes:
        raise Damaged(f"{name} has {size} bytes: more than the {most_bytes} that it may have")
    return size
