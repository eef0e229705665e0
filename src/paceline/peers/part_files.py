"""One worker's part of a state, as files in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Self

from blake3 import blake3
from pydantic import model_validator

from paceline.checkpoints.manifest import FileRecord, Manifest, Scalar
from paceline.checkpoints.pages.outline import Outline
from paceline.checkpoints.pages.packed import packed
from paceline.checkpoints.pages.page import Page, check_page
from paceline.checkpoints.pages.structure import Structure, WorkerPart, file_name
from paceline.checkpoints.saver import Snapshot
from paceline.checkpoints.storage import Damaged
from paceline.peers.memory_file import MemoryFile, Pool
from paceline.specs.base import Spec


class PartDescription(Spec):
    """A part's manifest entries, without its bytes."""

    head: Manifest
    part: WorkerPart
    structure: Structure
    scalars: dict[str, Scalar]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        try:
            structures = {self.part.structure: self.structure}
            check_page(Page(workers=(self.part,)), structures, "the part")
        except Damaged as error:
            raise ValueError(str(error)) from None
        return self

    @cached_property
    def packed(self) -> bytes:
        """This description as it is sent, to every worker that restores."""
        return packed(self)

    @property
    def size(self) -> int:
        """Total size of all files."""
        return sum(record.bytes for record in self.part.files)

    def spans(self) -> Iterator[tuple[str, int, FileRecord]]:
        """Yield each file's name, its offset in the concatenation of all files, and its record."""
        begin = 0
        for (section, number), record in zip(self.structure.files, self.part.files, strict=True):
            yield file_name(section, self.part.worker, number), begin, record
            begin += record.bytes


@dataclass(frozen=True)
class PartFiles:
    """A part's description and its bytes."""

    description: PartDescription
    files: dict[str, MemoryFile]

    @property
    def size(self) -> int:
        """Total size of all files."""
        return self.description.size

    def blake3(self, begin: int, count: int) -> str:
        """Return the BLAKE3 hash of a byte range."""
        for _, start, record in self.description.spans():
            if (start, record.bytes) == (begin, count):
                return record.blake3
        digest = blake3()
        for view in self.views(begin, count):
            digest.update(view)
        return digest.hexdigest()

    def views(self, begin: int, count: int) -> Iterator[memoryview]:
        """Yield views of a byte range of the concatenated files."""
        edges = accumulate((file.size for file in self.files.values()), initial=0)
        for file, (start, end) in zip(self.files.values(), pairwise(edges), strict=True):
            first, last = max(begin, start), min(begin + count, end)
            if first < last:
                yield file.view[first - start : last - start]


def laid_out(snapshot: Snapshot, outline: Outline, pool: Pool) -> PartFiles:
    """Lay out a snapshot as the files that a checkpoint would have."""
    outline.follow(snapshot.sections)
    files: dict[str, MemoryFile] = {}
    records: list[FileRecord] = []
    for contents in outline.files:
        file, digest, at = MemoryFile(contents.bytes, pool), blake3(), 0
        for chunk in contents.hashed_chunks(digest):
            file.write(at, chunk)
            at += len(chunk)
        files[contents.name] = file
        records.append(FileRecord(bytes=file.size, blake3=digest.hexdigest()))
    description = PartDescription(
        head=snapshot.head,
        part=outline.part(records),
        structure=outline.structure,
        scalars=snapshot.scalars,
    )
    return PartFiles(description, files)
