"""Copies of tensors that change again, in memory that is kept for the next time."""

import torch

from paceline.recover.pieces import Piece


class Staging:
    """Where one snapshot at a time is copied to: getting memory anew would cost more than the
    copying."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def copied(self, sections: dict[str, list[Piece]]) -> dict[str, list[Piece]]:
        """The same pieces, whose tensors nobody but the next call changes."""
        staged = {
            section: [self._copy(f"{section}/{number}", each) for number, each in enumerate(pieces)]
            for section, pieces in sections.items()
        }
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        return staged

    def _copy(self, key: str, piece: Piece) -> Piece:
        buffer = self._buffers.get(key)
        if buffer is None or (buffer.shape, buffer.dtype) != (
            piece.tensor.shape,
            piece.tensor.dtype,
        ):
            on_device = piece.tensor.device.type != "cpu"
            buffer = torch.empty(piece.tensor.shape, dtype=piece.tensor.dtype, pin_memory=on_device)
            self._buffers[key] = buffer
        buffer.copy_(piece.tensor, non_blocking=True)
        return Piece(piece.name, piece.whole, piece.box, buffer)
