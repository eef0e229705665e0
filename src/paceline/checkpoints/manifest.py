"""What a checkpoint says of itself: JSON, with the BLAKE3 hash of every file. Nothing is unpickled.

Whoever can write to where checkpoints are can also write a manifest and seal it: what it says leads
nowhere outside of its checkpoint.
"""

import hashlib
import math
import operator
from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import Field, NonNegativeInt, model_validator

from paceline.specs import PacelineError
from paceline.specs.base import Spec

MANIFEST = "manifest.json"
SEAL = "manifest.json.sha256"
"""The manifest's own hash, as `sha256sum` writes it; a checkpoint without one does not count."""

FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=200)]
"""Of a file beside the manifest, never of one elsewhere."""
Shape = tuple[NonNegativeInt, ...]


class FileRecord(Spec):
    """A file of a checkpoint."""

    bytes: NonNegativeInt
    blake3: str


class StoredPiece(Spec):
    """A rectangle of a tensor, and where it is stored."""

    file: FileName
    key: str
    offset: Shape
    shape: Shape


class StoredTensor(Spec):
    """A whole tensor, wherever its pieces are."""

    shape: Shape
    dtype: str
    pieces: list[StoredPiece]

    @model_validator(mode="after")
    def _check_pieces(self) -> Self:
        for piece in self.pieces:
            ends = list(map(sum, zip(piece.offset, piece.shape, strict=False)))
            same = len(piece.offset) == len(piece.shape) == len(self.shape)
            if not same or any(map(operator.gt, ends, self.shape)):
                raise ValueError(f"a piece in {piece.file} does not lie within its tensor")
        return self


class Scalar(Spec):
    """A number of an optimizer's state."""

    value: float | int
    dtype: str | None = None
    """What kind of tensor it was, if it was one."""


class Part(Spec):
    """What one worker has written of a checkpoint."""

    files: dict[FileName, FileRecord] = Field(default_factory=dict)
    tensors: dict[str, StoredTensor] = Field(default_factory=dict)
    scalars: dict[str, Scalar] = Field(default_factory=dict)
    error: str | None = None
    """Why it could not."""


class Contents(Spec):
    """What belongs to a training's state, but for the numbers in its tensors."""

    step: int
    """Steps that were taken."""
    values: dict[str, Any]
    """What is no tensor: options of the optimizer, the schedule, the scale of the loss."""
    tensors: dict[str, StoredTensor]
    scalars: dict[str, Scalar]


class Manifest(Contents):
    """A checkpoint: where it stands in the training, and what is stored where."""

    format: int = 1
    samples: int
    """Samples that they saw."""
    seconds: float
    """How long they took."""
    data: dict[str, int]
    """What the order of the samples depends on."""
    metrics: dict[str, float]
    """Figures of the last evaluation before."""
    files: dict[FileName, FileRecord]

    @classmethod
    def head(
        cls,
        step: int,
        *,
        samples: int = 0,
        seconds: float = 0.0,
        data: dict[str, int] | None = None,
        metrics: dict[str, float] | None = None,
        values: dict[str, Any] | None = None,
    ) -> Self:
        """Where a state stands, before anything of it is stored."""
        return cls(
            step=step,
            samples=samples,
            seconds=seconds,
            data=data or {},
            metrics=metrics or {},
            values=values or {},
            files={},
            tensors={},
            scalars={},
        )

    @model_validator(mode="after")
    def _check_tensors(self) -> Self:
        for name, stored in self.tensors.items():
            if not all(piece.file in self.files for piece in stored.pieces):
                raise ValueError(f"{name} is in a file that is not said to belong to it")
            if _numbers_there(stored) != math.prod(stored.shape):
                raise ValueError(f"{name} is not whole")
        return self

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(record.bytes for record in self.files.values())


def merged(parts: list[Part]) -> Part:
    """All workers' parts as one; refused where they do not make up whole tensors."""
    files: dict[str, FileRecord] = {}
    scalars: dict[str, Scalar] = {}
    for part in parts:
        files |= part.files
        scalars |= part.scalars
    tensors = together(stored for part in parts for stored in part.tensors.items())
    for name, stored in tensors.items():
        there = _numbers_there(stored)
        if there != math.prod(stored.shape):
            raise PacelineError(
                f"the workers wrote {there} of the {math.prod(stored.shape)} numbers of {name}",
                fix="this is a mistake in Paceline: please report it with the layout and the model",
            )
    return Part(files=files, tensors=tensors, scalars=scalars)


def together(stored: Iterable[tuple[str, StoredTensor]]) -> dict[str, StoredTensor]:
    """Tensors by their names, each with all of its pieces, which may be told one by one."""
    found: dict[str, StoredTensor] = {}
    for name, each in stored:
        known = found.setdefault(name, each.model_copy(update={"pieces": []}))
        known.pieces.extend(each.pieces)
    return found


def _numbers_there(stored: StoredTensor) -> int:
    return sum(math.prod(piece.shape) for piece in stored.pieces)


def seal_of(manifest: bytes) -> bytes:
    """The manifest's hash, in the form that `sha256sum --check` reads."""
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()
