"""Tensors in safetensors files, written piece by piece to avoid a copy for hashing."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from blake3 import blake3

from paceline.checkpoints.manifest import FileRecord
from paceline.checkpoints.pages.structure import file_name, key_of
from paceline.checkpoints.tensor_extent import Piece
from paceline.specs import PacelineError

_SMALLEST_FILE_BYTES = 16 << 20
_MOST_FILES = 16
"""Several files allow parallel hashing, and unchanged files need not be written again. But many
small files slow down parallel file systems."""

_CHUNK_BYTES = 1 << 20

_KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class TensorFile:
    """The contents of one file: a header, then the bytes of its tensors."""

    def __init__(self, section: str, worker: int, number: int, pieces: list[Piece]) -> None:
        self.section, self.number, self.pieces = section, number, pieces
        self.name = file_name(section, worker, number)
        self._header = _header(pieces)

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return len(self._header) + sum(piece.tensor.nbytes for piece in self.pieces)

    @cached_property
    def chunks(self) -> list[memoryview]:
        """The file's contents, in order."""
        flat = (piece.tensor.reshape(-1).view(torch.uint8) for piece in self.pieces)
        return [memoryview(self._header), *(each.numpy().data for each in flat)]

    def record(self) -> FileRecord:
        """Return the file's size and hash."""
        digest = blake3()
        for _ in self.hashed_chunks(digest):
            pass
        return FileRecord(bytes=self.bytes, blake3=digest.hexdigest())

    def hashed_chunks(self, digest: blake3) -> Iterator[memoryview]:
        """Yield the file's contents, and hash each chunk while it is in the CPU cache."""
        for chunk in self.chunks:
            for begin in range(0, len(chunk), _CHUNK_BYTES):
                part = chunk[begin : begin + _CHUNK_BYTES]
                digest.update(part)  # releases the GIL
                yield part


def in_files(section: str, worker: int, pieces: Sequence[Piece]) -> Iterator[TensorFile]:
    """Divide pieces into files, named by section, worker and number."""
    total = sum(piece.tensor.nbytes for piece in pieces)
    limit = max(_SMALLEST_FILE_BYTES, total // _MOST_FILES)
    number, size, some = 0, 0, list[Piece]()
    for piece in pieces:
        if some and size + piece.tensor.nbytes > limit:
            yield TensorFile(section, worker, number, some)
            number, size, some = number + 1, 0, []
        some.append(piece)
        size += piece.tensor.nbytes
    if some:
        yield TensorFile(section, worker, number, some)


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's dtype, as torch spells it."""
    return str(tensor.dtype).removeprefix("torch.")


def _header(pieces: list[Piece]) -> bytes:
    entries: dict[str, object] = {}
    begin = 0
    for piece in pieces:
        kind = _KINDS.get(piece.tensor.dtype)
        if kind is None:
            raise PacelineError(
                f"{piece.name} is of type {dtype_name(piece.tensor)}, which safetensors files"
                " cannot hold",
                fix="keep it in another type, or as a buffer with persistent=False",
            )
        end = begin + piece.tensor.nbytes
        entries[key_of(piece.name, piece.whole, piece.box)] = {
            "dtype": kind,
            "shape": piece.box.shape,
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # align the tensor data to 8 bytes
    return len(text).to_bytes(8, "little") + text
