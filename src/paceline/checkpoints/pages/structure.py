"""Structures: the tensors that a worker writes. Workers with shards of the same tensors share one.

What differs between such workers is only the place of their pieces in the full tensors. Pieces of
the same place and form are of one kind, so a worker has a few kinds for hundreds of tensors.
"""

from collections.abc import Sequence
from typing import Annotated, Self

from blake3 import blake3
from pydantic import Field, NonNegativeInt, model_validator

from paceline.checkpoints.manifest import FileRecord, Shape, TensorForm
from paceline.checkpoints.tensor_extent import Box
from paceline.specs.base import Spec

StructureId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Section = Annotated[str, Field(pattern=r"^[a-z]+$", max_length=32)]
StoredBox = tuple[Shape, Shape]
"""A rectangle's offset and shape."""


class Columns(Spec):
    """The pieces that a worker writes, in columns, and the files that they are in; no names."""

    kinds: tuple[TensorForm, ...]
    """The full tensors' form, for each kind of piece."""
    files: tuple[tuple[Section, NonNegativeInt], ...]
    """The section and number of each file."""
    kind_of: tuple[NonNegativeInt, ...]
    """The kind of each piece."""
    file_of: tuple[NonNegativeInt, ...]
    """The file of each piece."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.kind_of) != len(self.file_of):
            raise ValueError("the columns of a structure have different lengths")
        if self.kind_of and not (
            max(self.kind_of) < len(self.kinds) and max(self.file_of) < len(self.files)
        ):
            raise ValueError("a structure has no such kind or file")
        return self


class Structure(Columns):
    """The pieces that a worker writes, and the files that they are in."""

    names: tuple[str, ...]
    """The tensor of each piece."""

    @model_validator(mode="after")
    def _has_all_names(self) -> Self:
        if len(self.names) != len(self.kind_of):
            raise ValueError("the columns of a structure have different lengths")
        return self


class StoredStructure(Columns):
    """A structure in the root, which has each name once."""

    name_of: tuple[NonNegativeInt, ...]
    """The number of each piece's tensor in the root's names."""

    @model_validator(mode="after")
    def _has_all_names(self) -> Self:
        if len(self.name_of) != len(self.kind_of):
            raise ValueError("the columns of a structure have different lengths")
        return self

    def named(self, names: Sequence[str]) -> Structure:
        """Return the structure itself; raise ValueError if it has no such names."""
        if self.name_of and max(self.name_of) >= len(names):
            raise ValueError("a structure has no such name")
        return Structure(
            kinds=self.kinds,
            files=self.files,
            kind_of=self.kind_of,
            file_of=self.file_of,
            names=tuple(names[number] for number in self.name_of),
        )


class WorkerPart(Spec):
    """What one worker wrote: the places of its pieces, and its files."""

    worker: NonNegativeInt
    structure: StructureId
    boxes: tuple[StoredBox, ...]
    """The place of each kind of piece."""
    files: tuple[FileRecord, ...]


def structure_id(text: str) -> str:
    """Return the name of a structure, by its JSON text."""
    return blake3(text.encode()).hexdigest(length=16)


def file_name(section: str, worker: int, number: int) -> str:
    """Return the name of a worker's file."""
    return f"{section}-{worker:05d}-{number:03d}.safetensors"


def worker_of(name: str) -> int:
    """Return the worker that wrote a file of this name."""
    return int(name.split("-")[1])


def key_of(name: str, whole: tuple[int, ...], box: Box) -> str:
    """Return a piece's name in its file."""
    return name if box.shape == whole else f"{name}[{','.join(map(str, box.offset))}]"
