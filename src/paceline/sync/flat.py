"""Tensors as one row of numbers, and back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from paceline.sync.mode import Held


@dataclass(frozen=True)
class Row:
    """Parameters that are exchanged together, as what is held of them lies behind each other."""

    held: tuple[Held, ...]

    @property
    def shapes(self) -> list[torch.Size]:
        """Of what is held of each."""
        return [each.local.shape for each in self.held]

    @property
    def locals(self) -> list[torch.Tensor]:
        """What is held of each."""
        return [each.local for each in self.held]

    def flat(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A copy of tensors of these shapes as one row, empty where a stage learns nothing."""
        return torch.cat([tensor.detach().flatten() for tensor in tensors] or [torch.empty(0)])

    def weights(self) -> torch.Tensor:
        """A copy of the weights as they are."""
        return self.flat(self.locals)

    def zeros(self) -> torch.Tensor:
        """A row of as many."""
        return torch.zeros_like(self.weights())

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """A row as tensors of these shapes, on the same memory."""
        sizes = [shape.numel() for shape in self.shapes]
        return [
            part.view(shape)
            for part, shape in zip(torch.split(flat, sizes), self.shapes, strict=True)
        ]


def in_order(held: Sequence[Held], rows: Iterable[tuple[Row, torch.Tensor]]) -> list[torch.Tensor]:
    """What rows say of the parameters in them, in the order of `held`; what does not learn, and so
    is in no row, as it is."""
    found = {
        id(each): part
        for row, flat in rows
        for each, part in zip(row.held, row.views(flat), strict=True)
    }
    return [found.get(id(each), each.local.detach()) for each in held]


def rows_of(held: Sequence[Held], count: int) -> list[Row]:
    """Parameters in `count` rows of nearly equal size, in their order; fewer where there are not so
    many parameters."""
    count = max(1, min(count, len(held)))
    ends = list(accumulate(each.local.numel() for each in held))
    total = ends[-1]
    rows: list[list[Held]] = [[] for _ in range(count)]
    for number, (each, end) in enumerate(zip(held, ends, strict=True)):
        middle = end - each.local.numel() / 2
        # Every row gets at least one: there are enough parameters left for the rows that follow.
        earliest = max(0, count - (len(held) - number))
        latest = next((row for row in range(count) if not rows[row]), count - 1)
        wanted = int(middle * count / max(1, total))
        rows[min(max(wanted, earliest), latest)].append(each)
    return [Row(tuple(row)) for row in rows if row]


def buckets_of(held: Sequence[Held], bucket_bytes: int) -> list[Row]:
    """Parameters in rows of about `bucket_bytes`, the last of the model first, as backward comes to
    them; the first row is small, so that the exchange begins early."""
    rows: list[list[Held]] = [[]]
    size, most = 0, min(bucket_bytes, 1 << 20)
    for each in reversed(held):
        if rows[-1] and size + each.local.nbytes > most:
            rows.append([])
            size, most = 0, bucket_bytes
        rows[-1].append(each)
        size += each.local.nbytes
    return [Row(tuple(row)) for row in rows if row]
