"""Copies of tensors that change again, in memory that is kept for the next time."""

import torch

from paceline.checkpoints.tensor_extent import Box, Piece


class Staging:
    """Where one snapshot at a time is copied to: getting memory anew would cost more than the
    copying."""

    def __init__(self) -> None:
        self._staged: dict[str, list[Piece]] = {}

    def copied(self, sections: dict[str, list[Piece]]) -> dict[str, list[Piece]]:
        """The same pieces, whose tensors nobody but the next call changes; the same object as from
        the call before, unless the pieces are others."""
        if _kinds(sections) != _kinds(self._staged):
            self._staged = {}  # frees it first
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
