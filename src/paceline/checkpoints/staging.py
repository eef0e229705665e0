"""Staging buffers: copies of tensors that training is about to change, in reused memory."""

import torch

from paceline.checkpoints.tensor_extent import Box, Piece


class Staging:
    """Buffers for one snapshot at a time. Allocating new memory would take longer than the copy."""

    def __init__(self) -> None:
        self._staged: dict[str, list[Piece]] = {}

    def copied(self, sections: dict[str, list[Piece]]) -> dict[str, list[Piece]]:
        """Copy the pieces into buffers that stay unchanged until the next call.

        The result is the same object as before, unless the pieces' names, shapes or dtypes have
        changed.
        """
        if _kinds(sections) != _kinds(self._staged):
            self._staged = {}  # free the old buffers first
            self._staged = {name: list(map(_room, pieces)) for name, pieces in sections.items()}
        for name, pieces in sections.items():
            for staged, piece in zip(self._staged[name], pieces, strict=True):
                staged.tensor.copy_(piece.tensor, non_blocking=True)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        return self._staged


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
