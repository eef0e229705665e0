"""Load a verified checkpoint into this worker's tensors, whichever workers wrote it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from safetensors import SafetensorError, safe_open

from paceline.checkpoints.manifest import Manifest, StoredPiece
from paceline.checkpoints.storage import Damaged, Readable
from paceline.checkpoints.tensor_extent import Box, Piece
from paceline.checkpoints.tensor_files import dtype_name
from paceline.specs import PacelineError


def fill(pieces: Iterable[Piece], manifest: Manifest, storage: Readable) -> None:
    """Load the checkpoint's data into these pieces' tensors, reading each file once."""
    wanted: dict[str, list[tuple[Piece, StoredPiece, Box]]] = defaultdict(list)
    for piece in pieces:
        _check_form(piece, manifest)
        for stored in manifest.tensors[piece.name].pieces:
            shared = piece.box.overlap(Box(stored.offset, stored.shape))
            if shared is not None:
                wanted[stored.file].append((piece, stored, shared))
    for file, reads in sorted(wanted.items()):
        try:
            with (
                storage.reading(manifest.step, file, manifest.files[file].bytes) as path,
                safe_open(path, framework="pt") as contents,
            ):
                for piece, stored, shared in reads:
                    _copy(contents, piece, stored, shared)
        except SafetensorError as error:
            raise PacelineError(
                f"{file} of the checkpoint of step {manifest.step} is no safetensors file of"
                f" its tensors, although its hash is that of the manifest: {error}",
                fix="do not trust this checkpoint: somebody has written it by hand",
            ) from None
        except Damaged as error:
            raise PacelineError(
                f"the checkpoint of step {manifest.step} was changed while it was loaded: {error}",
                fix="see who else writes there, then resume the run",
            ) from None


def _copy(contents: Any, piece: Piece, stored: StoredPiece, shared: Box) -> None:
    there = shared.within(stored.offset)
    here = piece.tensor[shared.within(piece.box.offset).slices]
    written = contents.get_slice(stored.key)
    if tuple(written.get_shape()) != stored.shape:
        raise SafetensorError(f"{stored.key} is of another shape than the manifest says")
    if there.shape == stored.shape:
        here.copy_(contents.get_tensor(stored.key))
    else:
        here.copy_(written[there.slices])


def _check_form(piece: Piece, manifest: Manifest) -> None:
    stored = manifest.tensors.get(piece.name)
    if stored is None:
        raise PacelineError(
            f"the checkpoint of step {manifest.step} has no {piece.name}",
            fix="resume with the model and the optimizer that the run was started with, or start a"
            " new run",
        )
    if (stored.shape, stored.dtype) != (piece.whole, dtype_name(piece.tensor)):
        raise PacelineError(
            f"{piece.name} is {dtype_name(piece.tensor)} {list(piece.whole)} here, but"
            f" {stored.dtype} {list(stored.shape)} in the checkpoint of step {manifest.step}",
            fix="resume with the model and the optimizer that the run was started with, or start a"
            " new run",
        )
