"""Weights in safetensors files that other programs wrote: one file, or several with an index.

Nothing is unpickled, and of each tensor only the rows that a worker holds are read.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from paceline.checkpoints.tensor_extent import Piece
from paceline.specs import PacelineError
from paceline.specs.owned_files import read_bounded

_FILE = "model.safetensors"
_INDEX = ".index.json"
_MOST_INDEX_BYTES = 64 * 2**20
_PICKLES = (".metadata", "pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin")
"""Files of folders whose tensors or metadata are pickles."""


@dataclass(frozen=True)
class WeightFiles:
    """The files that hold a model's weights."""

    path: Path
    files: dict[str, Path]
    """The file of each tensor."""

    @classmethod
    def find(cls, path: Path) -> "WeightFiles":
        """Find the tensors of a safetensors file, or of a folder or an index of such files."""
        file = path / _FILE if path.is_dir() else path
        index = file if file.name.endswith(_INDEX) else file.with_name(file.name + _INDEX)
        if index != file and file.is_file():
            with _opened(file) as contents:
                return cls(path, dict.fromkeys(contents.keys(), file))
        if index.is_file():
            return cls(path, _placed(index))
        folder = file.parent
        pickles = [name for name in (path.name, *_PICKLES) if (folder / name).is_file()]
        if pickles:
            raise PacelineError(
                f"{folder / pickles[0]} is or needs a pickle, which can run any code when it is"
                " read, so Paceline does not read it",
                fix="where you trust it, load it with the program that wrote it, and save it as"
                " safetensors: safetensors.torch.save_file(model.state_dict(), …)",
            )
        raise PacelineError(
            f"there are no pretrained weights at {path}",
            fix=f"give a safetensors file, or a folder with {_FILE} or {_FILE}{_INDEX}",
        )

    def fill(self, pieces: Iterable[Piece]) -> None:
        """Read the rows of these pieces, named as in the files; convert them to their types."""
        by_file: dict[Path, list[Piece]] = defaultdict(list)
        for piece in pieces:
            by_file[self.files[piece.name]].append(piece)
        for file, wanted in sorted(by_file.items()):
            with _opened(file) as contents:
                for piece in wanted:
                    _copy(contents, piece, file)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, framework="pt") as contents:
            yield contents
    except (SafetensorError, OSError) as error:
        raise PacelineError(
            f"{file} cannot be read as safetensors: {error}",
            fix="give a whole safetensors file that you can read",
        ) from None


def _placed(index: Path) -> dict[str, Path]:
    """Read an index: the file of each tensor, in the index's own folder."""
    try:
        placed = json.loads(read_bounded(index, _MOST_INDEX_BYTES))["weight_map"]
        files = {str(name): index.parent / str(file) for name, file in placed.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PacelineError(
            f"{index} is no index of safetensors files", fix="write it with save_pretrained"
        ) from None
    strange = [file for file in placed.values() if Path(str(file)).name != file]
    if strange:
        raise PacelineError(
            f"{index} names {strange[0]!r}, which is not in its folder",
            fix="look at who wrote it; nothing was read",
        )
    return files


def _copy(contents: Any, piece: Piece, file: Path) -> None:
    stored = contents.get_slice(piece.name)
    shape = tuple(stored.get_shape())
    if shape != piece.whole:
        raise PacelineError(
            f"{piece.name} has the shape {list(shape)} in {file}, but {list(piece.whole)} in the"
            " model",
            fix="build the model as the weights were trained; or leave this one out with"
            f' Pretrained(…, rename={{"{piece.name}": "left out"}}, partial=True)',
        )
    whole = piece.box.shape == piece.whole
    piece.tensor.copy_(contents.get_tensor(piece.name) if whole else stored[piece.box.slices])
