"""Pages of a manifest: a node's page lists its workers' parts, others list pages below them.

A page above others knows where their pieces are only as bounds, so that its size does not depend
on the number of workers below. The root has the structures, which are the same for many workers.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from paceline.checkpoints.manifest import FileName, Manifest, TensorForm
from paceline.checkpoints.pages.structure import (
    StoredBox,
    StoredStructure,
    Structure,
    StructureId,
    WorkerPart,
)
from paceline.checkpoints.storage import Damaged
from paceline.specs.base import Spec

MOST_PAGE_BYTES = 64 << 20
"""Maximum size of a page: those of a node with 100 workers have less than 1 MB."""

FORMAT: Literal[2] = 2

Bounds = dict[StructureId, tuple[StoredBox, ...]]
"""Rectangles that enclose the pieces of each kind, for each structure."""


class PageEntry(Spec):
    """A page below another one: its file, and what it is about."""

    name: FileName
    bytes: Annotated[NonNegativeInt, Field(le=MOST_PAGE_BYTES)]
    blake3: str
    files: PositiveInt
    """Number of part files that it and the pages below it name."""
    bounds: Bounds


class Page(Spec):
    """A page: the parts of workers, or pages below it."""

    workers: tuple[WorkerPart, ...] = ()
    pages: tuple[PageEntry, ...] = ()

    @property
    def files(self) -> int:
        """Number of part files that this page and the pages below it name."""
        return sum(len(each.files) for each in self.workers) + sum(
            each.files for each in self.pages
        )

    def bounds(self) -> Bounds:
        """Return rectangles that enclose the pieces below."""
        below: dict[str, list[Sequence[StoredBox]]] = {}
        for part in self.workers:
            below.setdefault(part.structure, []).append(part.boxes)
        for entry in self.pages:
            for structure, boxes in entry.bounds.items():
                below.setdefault(structure, []).append(boxes)
        return {
            structure: tuple(_enclosing(boxes) for boxes in zip(*each, strict=True))
            for structure, each in below.items()
        }


class Root(Manifest):
    """The file that commits a checkpoint: its contents without tensors, and the topmost page."""

    format: Literal[2] = FORMAT
    total_bytes: NonNegativeInt
    """Size of all part files."""
    names: tuple[str, ...]
    """All tensors."""
    stored: dict[StructureId, StoredStructure] = Field(alias="structures")
    page: Page

    @model_validator(mode="after")
    def _has_all_names(self) -> Self:
        _ = self.structures
        return self

    @cached_property
    def structures(self) -> dict[str, Structure]:
        """The structures, with their names."""
        return {name: each.named(self.names) for name, each in self.stored.items()}

    @classmethod
    def of(cls, head: Manifest, structures: Mapping[str, Structure], page: Page, size: int) -> Self:
        """Return the root of these pages."""
        numbers = {name: number for number, name in enumerate(tensors_of(structures.values()))}
        fields = {name: getattr(head, name) for name in Manifest.model_fields if name != "tensors"}
        return cls(
            **fields,
            total_bytes=size,
            names=tuple(numbers),
            structures={
                name: StoredStructure(
                    **each.model_dump(exclude={"names"}),
                    name_of=tuple(numbers[tensor] for tensor in each.names),
                )
                for name, each in structures.items()
            },
            page=page,
        )

    def text(self) -> bytes:
        """Return the contents of the root's file."""
        return self.model_dump_json(exclude={"tensors"}, by_alias=True).encode()


def _enclosing(boxes: Sequence[StoredBox]) -> StoredBox:
    full = [box for box in boxes if all(box[1])] or boxes[:1]
    begins = tuple(map(min, zip(*(offset for offset, _ in full), strict=True)))
    ends = (
        max(a + length for a, length in zip(at, lengths, strict=True))
        for at, lengths in zip(
            zip(*(offset for offset, _ in full), strict=True),
            zip(*(shape for _, shape in full), strict=True),
            strict=True,
        )
    )
    return begins, tuple(end - begin for begin, end in zip(begins, ends, strict=True))


def tensors_of(structures: Iterable[Structure]) -> dict[str, TensorForm]:
    """Return the form of every tensor; raise Damaged if structures contradict each other."""
    found: dict[str, TensorForm] = {}
    for each in structures:
        forms = (each.kinds[kind] for kind in each.kind_of)
        for name, form in zip(each.names, forms, strict=True):
            if found.setdefault(name, form) != form:
                raise Damaged(f"{name} has two forms: {found[name]} and {form}")
    return found


def check_page(page: Page, structures: Mapping[str, Structure], name: str) -> None:
    """Raise Damaged if a page does not hold together with the root's structures."""
    for part in page.workers:
        _check_boxes(part.structure, part.boxes, structures, name)
        if len(part.files) != len(structures[part.structure].files):
            raise Damaged(f"{name} has another number of files than its structure")
    for entry in page.pages:
        for structure, boxes in entry.bounds.items():
            _check_boxes(structure, boxes, structures, name)


def _check_boxes(
    structure: str,
    boxes: Sequence[StoredBox],
    structures: Mapping[str, Structure],
    name: str,
) -> None:
    if structure not in structures:
        raise Damaged(f"{name} has pieces of a structure that the root does not have")
    kinds = structures[structure].kinds
    if len(boxes) != len(kinds):
        raise Damaged(f"{name} has another number of pieces than its structure")
    for (offset, shape), kind in zip(boxes, kinds, strict=True):
        same = len(offset) == len(shape) == len(kind.shape)
        if not same or any(map(int.__gt__, map(sum, zip(offset, shape, strict=True)), kind.shape)):
            raise Damaged(f"a piece in {name} does not lie within its tensor")
