"""A saved state, wherever it is: what it holds, where its pieces are, and how to read them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from paceline.checkpoints.manifest import FileRecord, Manifest
from paceline.checkpoints.storage import Readable
from paceline.checkpoints.tensor_extent import Box


@dataclass(frozen=True)
class StoredPiece:
    """A rectangle of a tensor, and where it is stored."""

    file: str
    file_bytes: int
    key: str
    """Its name in the file."""
    box: Box


class PieceIndex(Protocol):
    """Where the pieces of a state are stored."""

    def find(self, name: str, box: Box) -> Iterable[StoredPiece]:
        """Return the stored pieces of a tensor that overlap this rectangle.

        Raise Damaged if a page that says so is not what was written.
        """

    def share(self, worker: int, workers: int) -> Collection[tuple[str, FileRecord]]:
        """Return this worker's share of the files, for workers that verify all of them together.

        Raise Damaged if a page that names them is not what was written: each page is read for some
        worker's share.
        """


@dataclass(frozen=True)
class SavedState:
    """A checkpoint, or a state in the memory of peers."""

    manifest: Manifest
    index: PieceIndex
    storage: Readable
