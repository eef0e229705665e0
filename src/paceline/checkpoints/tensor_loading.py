"""Load a verified state into this worker's tensors, whichever workers wrote it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from safetensors import SafetensorError, safe_open

from paceline.checkpoints.coverage import covers_once
from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.saved_state import SavedState, StoredPiece
from paceline.checkpoints.storage import Damaged
from paceline.checkpoints.tensor_extent import Box, Piece
from paceline.checkpoints.tensor_files import dtype_name
from paceline.specs import PacelineError

Read = tuple[Piece, StoredPiece, Box]
"""A piece to fill, a stored one, and what they share."""


def fill(pieces: Iterable[Piece], saved: SavedState) -> None:
    """Load the state's data into these pieces' tensors, reading each file once."""
    step = saved.manifest.step
    try:
        for file, reads in sorted(reads_by_file(pieces, saved).items()):
            try:
                size = reads[0][1].file_bytes
                with (
                    saved.storage.reading(step, file, size) as path,
                    safe_open(path, framework="pt") as contents,
                ):
                    for piece, stored, shared in reads:
                        _copy(contents, piece, stored, shared)
            except SafetensorError as error:
                raise PacelineError(
                    f"{file} of the checkpoint of step {step} is no safetensors file of"
                    f" its tensors, although its hash is that of the manifest: {error}",
                    fix="do not trust this checkpoint: somebody has written it by hand",
                ) from None
    except Damaged as error:
        raise PacelineError(
            f"the checkpoint of step {step} was changed while it was loaded: {error}",
            fix="see who else writes there, then resume the run",
        ) from None


def reads_by_file(pieces: Iterable[Piece], saved: SavedState) -> dict[str, list[Read]]:
    """Return what to read of each file; raise an error if it does not fill the pieces."""
    wanted: dict[str, list[Read]] = defaultdict(list)
    for piece in pieces:
        _check_form(piece, saved.manifest)
        filled = []
        for stored in saved.index.find(piece.name, piece.box):
            shared = piece.box.overlap(stored.box)
            if shared is not None:
                wanted[stored.file].append((piece, stored, shared))
                filled.append(shared.within(piece.box.offset))
        if not covers_once(piece.box.shape, filled):
            raise PacelineError(
                f"the checkpoint of step {saved.manifest.step} does not hold each element of"
                f" {piece.name} once",
                fix="do not trust this checkpoint: somebody has written it by hand",
            )
    return wanted


def _copy(contents: Any, piece: Piece, stored: StoredPiece, shared: Box) -> None:
    there = shared.within(stored.box.offset)
    here = piece.tensor[shared.within(piece.box.offset).slices]
    written = contents.get_slice(stored.key)
    if tuple(written.get_shape()) != stored.box.shape:
        raise SafetensorError(f"{stored.key} is of another shape than the manifest says")
    if there.shape == stored.box.shape:
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
