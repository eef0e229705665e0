"""Outlines: a worker's files and their description, computed again only when the pieces change."""

from collections.abc import Sequence

from paceline.checkpoints.coverage import added_up, held, tensor_weight
from paceline.checkpoints.manifest import FileRecord, TensorForm
from paceline.checkpoints.pages.structure import Structure, WorkerPart, structure_id
from paceline.checkpoints.tensor_extent import Box, Piece
from paceline.checkpoints.tensor_files import TensorFile, dtype_name, in_files


class Outline:
    """The files of a worker's part, and which tensor pieces they hold."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._sections: dict[str, list[Piece]] | None = None
        self._boxes: tuple[Box, ...] = ()
        self._id = ""
        self.files: list[TensorFile] = []
        self.structure = Structure(kinds=(), files=(), names=(), kind_of=(), file_of=())
        self.text = ""
        """The structure as JSON."""
        self.coverage = 0
        """What these pieces add to the coverage of all tensors."""

    def follow(self, sections: dict[str, list[Piece]]) -> None:
        """Use these pieces; the same object as before holds the same pieces."""
        if sections is self._sections:
            return
        self._sections = None
        self.files = [
            file
            for section, pieces in sections.items()
            for file in in_files(section, self._worker, pieces)
        ]
        kinds: dict[tuple[tuple[int, ...], str, Box], int] = {}
        weights: list[int] = []
        names, kind_of, file_of = list[str](), list[int](), list[int]()
        for number, file in enumerate(self.files):
            for piece in file.pieces:
                place = piece.whole, dtype_name(piece.tensor), piece.box
                kind = kinds.setdefault(place, len(kinds))
                if kind == len(weights):
                    weights.append(0)
                weights[kind] += tensor_weight(piece.name)
                names.append(piece.name)
                kind_of.append(kind)
                file_of.append(number)
        self.structure = Structure(
            kinds=tuple(TensorForm(shape=whole, dtype=dtype) for whole, dtype, _ in kinds),
            files=tuple((file.section, file.number) for file in self.files),
            names=tuple(names),
            kind_of=tuple(kind_of),
            file_of=tuple(file_of),
        )
        self.text = self.structure.model_dump_json()
        self._id = structure_id(self.text)
        self._boxes = tuple(box for _, _, box in kinds)
        self.coverage = added_up(
            weight * held(whole, box)
            for (whole, _, box), weight in zip(kinds, weights, strict=True)
        )
        self._sections = sections  # last: pieces that no file can hold have raised an error

    def part(self, records: Sequence[FileRecord]) -> WorkerPart:
        """Return the description of the files, once they are written."""
        return WorkerPart(
            worker=self._worker, structure=self._id, boxes=self._boxes, files=tuple(records)
        )
