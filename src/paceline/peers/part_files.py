"""One worker's part of a state, as files in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from blake3 import blake3

from paceline.checkpoints.manifest import FileRecord, Manifest, Part, StoredTensor, together
from paceline.checkpoints.saver import Snapshot
from paceline.checkpoints.tensor_extent import Piece
from paceline.checkpoints.tensor_files import TensorFile, in_files
from paceline.peers.memory_file import MemoryFile, Pool
from paceline.specs.base import Spec


class PartDescription(Spec):
    """A part's manifest entries, without its bytes."""

    head: Manifest
    part: Part

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(record.bytes for record in self.part.files.values())

    def spans(self) -> Iterator[tuple[str, int, FileRecord]]:
        """Yield each file's name, its offset in the concatenation of all files, and its record."""
        begin = 0
        for name, record in self.part.files.items():
            yield name, begin, record
            begin += record.bytes


@dataclass(frozen=True)
class PartFiles:
    """A part's description and its bytes."""

    description: PartDescription
    files: dict[str, MemoryFile]

    @property
    def size(self) -> int:
        """Total size of all files."""
        return self.description.bytes

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


class Outline:
    """The files and tensor pieces of a worker's part, recomputed only when the pieces change."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._sections: dict[str, list[Piece]] | None = None
        self.files: list[TensorFile] = []
        self.tensors: dict[str, StoredTensor] = {}

    def follow(self, sections: dict[str, list[Piece]]) -> None:
        """Use these pieces."""
        if sections is self._sections:
            return
        self._sections = sections
        self.files = [
            file
            for section, pieces in sections.items()
            for file in in_files(section, self._rank, pieces)
        ]
        self.tensors = together(stored for file in self.files for stored in file.stored())


def laid_out(snapshot: Snapshot, outline: Outline, pool: Pool) -> PartFiles:
    """Lay out a snapshot as the files that a checkpoint would have."""
    outline.follow(snapshot.sections)
    files: dict[str, MemoryFile] = {}
    records: dict[str, FileRecord] = {}
    for contents in outline.files:
        file, digest, at = MemoryFile(contents.bytes, pool), blake3(), 0
        for chunk in contents.hashed_chunks(digest):
            file.write(at, chunk)
            at += len(chunk)
        files[contents.name] = file
        records[contents.name] = FileRecord(bytes=file.size, blake3=digest.hexdigest())
    part = Part(files=records, tensors=outline.tensors, scalars=snapshot.scalars)
    return PartFiles(PartDescription(head=snapshot.head, part=part), files)
