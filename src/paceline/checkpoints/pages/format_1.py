"""Manifests of format 1, which version 0.1 wrote: one JSON with all pieces of all tensors."""

import operator
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import model_validator

from paceline.checkpoints.coverage import covers_once
from paceline.checkpoints.manifest import FileName, FileRecord, Manifest, Shape, TensorForm
from paceline.checkpoints.saved_state import StoredPiece
from paceline.checkpoints.tensor_extent import Box
from paceline.specs.base import Spec


class OldPiece(Spec):
    """A rectangle of a tensor, and where it is stored."""

    file: FileName
    key: str
    offset: Shape
    shape: Shape


class OldTensor(TensorForm):
    """A full tensor: its form and the locations of its pieces."""

    pieces: list[OldPiece]

    @model_validator(mode="after")
    def _check_pieces(self) -> Self:
        for piece in self.pieces:
            ends = list(map(sum, zip(piece.offset, piece.shape, strict=False)))
            same = len(piece.offset) == len(piece.shape) == len(self.shape)
            if not same or any(map(operator.gt, ends, self.shape)):
                raise ValueError(f"a piece in {piece.file} does not lie within its tensor")
        return self


class OldManifest(Manifest):
    """A manifest of format 1."""

    format: Literal[1] = 1
    tensors: dict[str, OldTensor]  # type: ignore[assignment]
    files: dict[FileName, FileRecord]

    @model_validator(mode="after")
    def _check_tensors(self) -> Self:
        for name, stored in self.tensors.items():
            if not all(piece.file in self.files for piece in stored.pieces):
                raise ValueError(f"{name} is in a file that is not said to belong to it")
            if not covers_once(stored.shape, stored.pieces):
                raise ValueError(f"the pieces of {name} do not hold each of its elements once")
        return self


class PieceList:
    """The pieces of a manifest of format 1."""

    def __init__(self, manifest: OldManifest) -> None:
        self._manifest = manifest

    def find(self, name: str, box: Box) -> Iterator[StoredPiece]:
        """Yield the stored pieces of a tensor that overlap this rectangle."""
        for piece in self._manifest.tensors[name].pieces:
            stored = Box(piece.offset, piece.shape)
            if box.overlap(stored) is not None:
                size = self._manifest.files[piece.file].bytes
                yield StoredPiece(piece.file, size, piece.key, stored)

    def share(self, worker: int, workers: int) -> list[tuple[str, FileRecord]]:
        """Return this worker's share of the files."""
        return sorted(self._manifest.files.items())[worker::workers]
