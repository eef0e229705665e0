"""What workers hand in to those that write a manifest's pages, and the root that comes of it."""

from collections.abc import Sequence

from blake3 import blake3
from pydantic import Field, NonNegativeInt

from paceline.checkpoints.coverage import added_up, held, tensor_weight
from paceline.checkpoints.manifest import FileRecord, Manifest, Scalar
from paceline.checkpoints.pages.outline import Outline
from paceline.checkpoints.pages.page import Page, PageEntry, Root, tensors_of
from paceline.checkpoints.pages.structure import Structure
from paceline.checkpoints.tensor_extent import Box
from paceline.specs import PacelineError
from paceline.specs.base import Spec


class HandedIn(Spec):
    """What a worker hands in: its part, or a page about the parts that it has collected."""

    page: Page = Field(default_factory=Page)
    structures: dict[str, str] = Field(default_factory=dict)
    """JSON texts, as only the root needs them; the same one for many workers."""
    scalars: tuple[str, ...] = ()
    """JSON texts."""
    coverage: int = 0
    """What the pieces add to the coverage of all tensors."""
    bytes: NonNegativeInt = 0
    """Total size of the part files."""
    error: str | None = None
    """Why the worker, or one below it, could not write its part; it names the worker."""


class Scalars(Spec):
    """A worker's scalars, as JSON."""

    scalars: dict[str, Scalar]


def handed_in_part(
    outline: Outline, records: Sequence[FileRecord], scalars: dict[str, Scalar]
) -> HandedIn:
    """Return what to hand in about a worker's own files."""
    part = outline.part(records)
    return HandedIn(
        page=Page(workers=(part,) if records else ()),
        structures={part.structure: outline.text} if records else {},
        scalars=(Scalars(scalars=scalars).model_dump_json(),),
        coverage=outline.coverage,
        bytes=sum(record.bytes for record in records),
    )


def merged(handed: Sequence[HandedIn]) -> HandedIn:
    """Merge what the workers of a group have handed in."""
    return HandedIn(
        page=Page(
            workers=tuple(part for each in handed for part in each.page.workers),
            pages=tuple(entry for each in handed for entry in each.page.pages),
        ),
        structures={name: text for each in handed for name, text in each.structures.items()},
        scalars=tuple(dict.fromkeys(text for each in handed for text in each.scalars)),
        coverage=added_up(each.coverage for each in handed),
        bytes=sum(each.bytes for each in handed),
    )


def page_name(level: int, worker: int) -> str:
    """Return the name of the page that a worker writes."""
    return f"manifest-{level}-{worker:05d}.json"


def handed_in_page(merged: HandedIn, name: str, text: bytes) -> HandedIn:
    """Return what to hand in about a page that is written."""
    entry = PageEntry(
        name=name,
        bytes=len(text),
        blake3=blake3(text).hexdigest(),
        files=merged.page.files,
        bounds=merged.page.bounds(),
    )
    return merged.model_copy(update={"page": Page(pages=(entry,))})


def root_of(head: Manifest, merged: HandedIn) -> Root:
    """Return the root; raise an error if the parts do not cover every tensor once."""
    structures = {
        name: Structure.model_validate_json(text) for name, text in merged.structures.items()
    }
    expected = added_up(
        tensor_weight(name) * held(form.shape, Box((0,) * len(form.shape), form.shape))
        for name, form in tensors_of(structures.values()).items()
    )
    if merged.coverage != expected:
        raise PacelineError(
            "the workers' pieces do not hold each element of every tensor once",
            fix="this is a mistake in Paceline: please report it with the layout and the model",
        )
    scalars: dict[str, Scalar] = {}
    for text in merged.scalars:
        scalars |= Scalars.model_validate_json(text).scalars
    full = head.model_copy(update={"scalars": scalars})
    return Root.of(full, structures, merged.page, merged.bytes)
