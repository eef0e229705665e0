"""This worker's part of the parameters, and its form as one flat row of numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from paceline.comm.torch_internals import foreach_copy_, foreach_sub_


@dataclass(frozen=True)
class Held:
    """A parameter and this worker's part of it: all, a shard, or a tensor-parallel slice."""

    name: str
    parameter: torch.nn.Parameter
    local: torch.Tensor
    """Shares its memory with the parameter."""


@dataclass(frozen=True)
class Row:
    """Parameters that are communicated together, concatenated."""

    held: tuple[Held, ...]

    @property
    def shapes(self) -> list[torch.Size]:
        """The shape of this worker's part of each parameter."""
        return [each.local.shape for each in self.held]

    @property
    def locals(self) -> list[torch.Tensor]:
        """This worker's part of each parameter."""
        return [each.local for each in self.held]

    def flat(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Concatenate tensors of these shapes into a new row; empty if a stage trains nothing."""
        return torch.cat([tensor.detach().flatten() for tensor in tensors] or [torch.empty(0)])

    def weights(self) -> torch.Tensor:
        """Return a copy of the weights."""
        return self.flat(self.locals)

    def zeros(self) -> torch.Tensor:
        """Return a row of zeros."""
        return torch.zeros_like(self.weights())

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """View a row as tensors of these shapes, in the same memory."""
        sizes = [shape.numel() for shape in self.shapes]
        return [
            part.view(shape)
            for part, shape in zip(torch.split(flat, sizes), self.shapes, strict=True)
        ]

    @torch.no_grad()
    def load(self, flat: torch.Tensor) -> None:
        """Copy a row into the weights."""
        foreach_copy_(self.locals, self.views(flat))

    @torch.no_grad()
    def subtract(self, flat: torch.Tensor) -> None:
        """Subtract a row from the weights."""
        foreach_sub_(self.locals, self.views(flat))


def in_order(held: Sequence[Held], rows: Iterable[tuple[Row, torch.Tensor]]) -> list[torch.Tensor]:
    """Return rows as tensors in the order of `held`; parameters in no row are unchanged."""
    found = {
        id(each): part
        for row, flat in rows
        for each, part in zip(row.held, row.views(flat), strict=True)
    }
    return [found.get(id(each), each.local.detach()) for each in held]


def rows_of(held: Sequence[Held], count: int) -> list[Row]:
    """Divide parameters into `count` rows of nearly equal size, in their order; fewer rows if there
    are fewer parameters."""
    count = max(1, min(count, len(held)))
    ends = list(accumulate(each.local.numel() for each in held))
    total = ends[-1]
    rows: list[list[Held]] = [[] for _ in range(count)]
    for number, (each, end) in enumerate(zip(held, ends, strict=True)):
        middle = end - each.local.numel() / 2
        # Every row gets at least one: enough parameters remain for the following rows.
        earliest = max(0, count - (len(held) - number))
        latest = next((row for row in range(count) if not rows[row]), count - 1)
        wanted = int(middle * count / max(1, total))
        rows[min(max(wanted, earliest), latest)].append(each)
    return [Row(tuple(row)) for row in rows if row]


def buckets_of(held: Sequence[Held], bucket_bytes: int) -> list[Row]:
    """Divide parameters into rows of about `bucket_bytes`, in the order of backward: the last of
    the model first. The first row is small, so that communication begins early."""
    rows: list[list[Held]] = [[]]
    size, most = 0, min(bucket_bytes, 1 << 20)
    for each in reversed(held):
        if rows[-1] and size + each.local.nbytes > most:
            rows.append([])
            size, most = 0, bucket_bytes
        rows[-1].append(each)
        size += each.local.nbytes
    return [Row(tuple(row)) for row in rows if row]
