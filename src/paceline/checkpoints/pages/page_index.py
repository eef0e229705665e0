"""Find pieces in a manifest's pages; read only the pages that may have them."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property

from paceline.checkpoints.manifest import FileRecord
from paceline.checkpoints.pages.page import Page, PageEntry
from paceline.checkpoints.pages.structure import StoredBox, Structure, WorkerPart, file_name, key_of
from paceline.checkpoints.saved_state import StoredPiece
from paceline.checkpoints.storage import Damaged
from paceline.checkpoints.tensor_extent import Box

_MOST_DEPTH = 8
"""Levels of pages: 64 to the power of 8 nodes."""


class PageIndex:
    """The pieces below a page. `read` returns a page that is verified, or raises Damaged."""

    def __init__(
        self, structures: dict[str, Structure], page: Page, read: Callable[[PageEntry], Page]
    ) -> None:
        self._structures, self._page, self._read_new = structures, page, read
        self._pages: dict[str, Page] = {}
        self._found: dict[tuple[str, int, Box], list[WorkerPart]] = {}

    def find(self, name: str, box: Box) -> Iterator[StoredPiece]:
        """Yield the stored pieces of a tensor that overlap this rectangle."""
        for each, number in self._rows.get(name, ()):
            structure = self._structures[each]
            kind, file = structure.kind_of[number], structure.file_of[number]
            for part in self._parts(each, kind, box):
                stored = Box(*part.boxes[kind])
                yield StoredPiece(
                    file=file_name(structure.files[file][0], part.worker, structure.files[file][1]),
                    file_bytes=part.files[file].bytes,
                    key=key_of(name, structure.kinds[kind].shape, stored),
                    box=stored,
                )

    def share(self, worker: int, workers: int) -> list[tuple[str, FileRecord]]:
        """Return this worker's share of the files, which are next to each other in the pages."""
        total = self._page.files
        begin, end = (total * each // workers for each in (worker, worker + 1))
        return list(self._files(self._page, begin, end, set(), 0))

    @cached_property
    def _rows(self) -> dict[str, list[tuple[str, int]]]:
        """The structures, and the positions in them, that each tensor has."""
        rows: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for each, structure in self._structures.items():
            for number, name in enumerate(structure.names):
                rows[name].append((each, number))
        return rows

    def _parts(self, structure: str, kind: int, box: Box) -> list[WorkerPart]:
        """Return the parts whose pieces of a kind overlap; the same for many tensors."""
        wanted = structure, kind, box
        if wanted not in self._found:
            self._found[wanted] = list(self._below(self._page, structure, kind, box, 0))
        return self._found[wanted]

    def _below(
        self, page: Page, structure: str, kind: int, box: Box, depth: int
    ) -> Iterator[WorkerPart]:
        for part in page.workers:
            if part.structure == structure and _overlap(part.boxes[kind], box):
                yield part
        for entry in page.pages:
            bounds = entry.bounds.get(structure)
            if bounds is not None and _overlap(bounds[kind], box):
                yield from self._below(self._read(entry, depth), structure, kind, box, depth + 1)

    def _files(
        self, page: Page, begin: int, end: int, seen: set[str], depth: int
    ) -> Iterator[tuple[str, FileRecord]]:
        """Yield the files from number `begin` to `end` below a page."""
        at = 0
        for part in page.workers:
            files = self._structures[part.structure].files
            for number in range(max(begin - at, 0), min(end - at, len(files))):
                section, count = files[number]
                yield file_name(section, part.worker, count), part.files[number]
            at += len(files)
        for entry in page.pages:
            if at < end and begin < at + entry.files:
                if entry.name in seen:  # pages that name each other could be followed for ever
                    raise Damaged(f"{entry.name} is named twice")
                seen.add(entry.name)
                below = self._read(entry, depth)
                if below.files != entry.files:
                    raise Damaged(f"{entry.name} has {below.files} files, not {entry.files}")
                yield from self._files(below, begin - at, end - at, seen, depth + 1)
            at += entry.files

    def _read(self, entry: PageEntry, depth: int) -> Page:
        if depth >= _MOST_DEPTH:
            raise Damaged(f"{entry.name} is below {depth} other pages")
        if entry.name not in self._pages:
            self._pages[entry.name] = self._read_new(entry)
        return self._pages[entry.name]


def _overlap(stored: StoredBox, box: Box) -> bool:
    return all(
        max(a, b) < min(a + length_a, b + length_b)
        for a, length_a, b, length_b in zip(*stored, *box, strict=True)
    )
