"""Staging buffers: copies of tensors that training is about to change, in reused memory."""

import time
from collections.abc import Callable

import torch

from paceline.checkpoints.tensor_extent import Box, Piece
from paceline.comm.host_copies import state_copies

_POLL_SECONDS = 0.002


class Staging:
    """Buffers for one snapshot at a time. Allocating new memory would take longer than the copy."""

    def __init__(self) -> None:
        self._staged: dict[str, list[Piece]] = {}
        self._end: torch.Event | None = None
        """The end of the copy on the device; None if the tensors are on the host."""

    def copied(self, sections: dict[str, list[Piece]]) -> dict[str, list[Piece]]:
        """Copy the pieces into buffers that stay unchanged until the next call.

        Nothing waits for a device here: read the buffers after `wait`, and let the pieces change
        after `state_copies.let_end`. The result is the same object as before, unless the pieces'
        names, shapes or dtypes have changed.
        """
        if _kinds(sections) != _kinds(self._staged):
            self._staged = {}  # free the old buffers first
            self._staged = {name: list(map(_room, pieces)) for name, pieces in sections.items()}
        self._end = state_copies.begin(
            [each.tensor for pieces in sections.values() for each in pieces],
            [each.tensor for name in sections for each in self._staged[name]],
        )
        return self._staged

    def wait(self, is_abandoned: Callable[[], bool]) -> None:
        """Wait in the thread that reads the buffers until the device has filled them."""
        while self._end is not None and not self._end.query():
            if is_abandoned():
                raise OSError("workers were lost before the device had copied its state")
            time.sleep(_POLL_SECONDS)


def _kinds(
    sections: dict[str, list[Piece]],
) -> dict[str, list[tuple[str, tuple[int, ...], Box, torch.dtype]]]:
    return {
        name: [(each.name, each.whole, each.box, each.tensor.dtype) for each in pieces]
        for name, pieces in sections.items()
    }


def _room(piece: Piece) -> Piece:
    tensor = piece.tensor
    pinned = tensor.device.type != "cpu"
    buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
    return Piece(piece.name, piece.whole, piece.box, buffer)
