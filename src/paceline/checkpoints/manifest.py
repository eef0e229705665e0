"""The manifest of a checkpoint: JSON, with the BLAKE3 hash of every file. Nothing is unpickled.

An attacker with write access to the checkpoint storage can also write a manifest and its hash. So a
manifest can name only files inside its own checkpoint.
"""

import hashlib
import operator
from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import Field, NonNegativeInt, model_validator

from paceline.checkpoints.coverage import covers_once
from paceline.specs import PacelineError
from paceline.specs.base import Spec

MANIFEST = "manifest.json"
SEAL = "manifest.json.sha256"
"""File with the manifest's hash, as `sha256sum` writes it. A checkpoint without it is ignored."""

MOST_MANIFEST_BYTES = 1 << 30
"""Maximum size of a manifest, which every worker holds in memory. A piece of a tensor takes about
140 bytes: 7 billion parameters and their optimizer state in 512 shards make 62 MB. A parsed
manifest takes ten times its size; one that an attacker wrote, up to 39 times."""

FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=200)]
"""Name of a file beside the manifest, never a path elsewhere."""
Shape = tuple[NonNegativeInt, ...]


class FileRecord(Spec):
    """A file of a checkpoint: its size and hash."""

    bytes: NonNegativeInt
    blake3: str


class StoredPiece(Spec):
    """A rectangle of a tensor, and where it is stored."""

    file: FileName
    key: str
    offset: Shape
    shape: Shape


class StoredTensor(Spec):
    """A full tensor: its shape, its dtype and the locations of its pieces."""

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
    """A number in the optimizer state."""

    value: float | int
    dtype: str | None = None
    """The tensor's dtype, if the number was a tensor."""


class Part(Spec):
    """The part of a checkpoint that one worker has written."""

    files: dict[FileName, FileRecord] = Field(default_factory=dict)
    tensors: dict[str, StoredTensor] = Field(default_factory=dict)
    scalars: dict[str, Scalar] = Field(default_factory=dict)
    error: str | None = None
    """Why the worker could not write its part."""


class Contents(Spec):
    """The contents of a training state, except the values of its tensors."""

    step: int
    """Optimizer steps completed."""
    values: dict[str, Any]
    """Everything else that is not a tensor: optimizer options, schedule, loss scale."""
    tensors: dict[str, StoredTensor]
    scalars: dict[str, Scalar]


class Manifest(Contents):
    """A checkpoint's manifest: its progress in the training, and where its data is stored."""

    format: int = 1
    samples: int
    """Samples used by these steps."""
    seconds: float
    """Duration of these steps."""
    data: dict[str, int]
    """The settings that determine the sample order."""
    metrics: dict[str, float]
    """Metrics of the last evaluation."""
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
        """Return a manifest with the training's progress only, before any data is stored."""
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
            if not covers_once(stored.shape, stored.pieces):
                raise ValueError(f"the pieces of {name} do not hold each of its elements once")
        return self

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(record.bytes for record in self.files.values())


def merged(parts: list[Part]) -> Part:
    """Merge all workers' parts; raise an error if they do not cover every tensor once."""
    files: dict[str, FileRecord] = {}
    scalars: dict[str, Scalar] = {}
    for part in parts:
        files |= part.files
        scalars |= part.scalars
    tensors = together(stored for part in parts for stored in part.tensors.items())
    for name, stored in tensors.items():
        if not covers_once(stored.shape, stored.pieces):
            raise PacelineError(
                f"the workers' pieces of {name} do not hold each of its elements once",
                fix="this is a mistake in Paceline: please report it with the layout and the model",
            )
    return Part(files=files, tensors=tensors, scalars=scalars)


def together(stored: Iterable[tuple[str, StoredTensor]]) -> dict[str, StoredTensor]:
    """Collect each tensor's pieces under its name; the input may list pieces one by one."""
    found: dict[str, StoredTensor] = {}
    for name, each in stored:
        known = found.setdefault(name, each.model_copy(update={"pieces": []}))
        known.pieces.extend(each.pieces)
    return found


def digest_of(manifest: bytes) -> bytes:
    """Return the manifest's hash in the format of `sha256sum --check`."""
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()


SEAL_BYTES = len(digest_of(b""))
"""Size of the file with the manifest's hash."""
