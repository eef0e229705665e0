"""This worker's part of the parameters, concatenated into flat buckets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from paceline.comm.torch_internals import foreach_copy_, foreach_sub_


@dataclass(frozen=True)
class LocalParameter:
    """A parameter and this worker's part of it: all, a shard, or a tensor-parallel slice."""

    name: str
    parameter: torch.nn.Parameter
    local: torch.Tensor
    """Shares its memory with the parameter."""


@dataclass(frozen=True)
class Bucket:
    """Parameters that are communicated together, concatenated."""

    parameters: tuple[LocalParameter, ...]

    @property
    def shapes(self) -> list[torch.Size]:
        """The shape of this worker's part of each parameter."""
        return [each.local.shape for each in self.parameters]

    @property
    def locals(self) -> list[torch.Tensor]:
        """This worker's part of each parameter."""
        return [each.local for each in self.parameters]

    def flat(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Concatenate tensors of these shapes; empty if a pipeline stage trains nothing."""
        return torch.cat([tensor.detach().flatten() for tensor in tensors] or [torch.empty(0)])

    def weights(self) -> torch.Tensor:
        """Return a copy of the weights."""
        return self.flat(self.locals)

    def zeros(self) -> torch.Tensor:
        """Return a flat tensor of zeros."""
        return torch.zeros_like(self.weights())

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """View a flat tensor as tensors of these shapes, in the same memory."""
        sizes = [shape.numel() for shape in self.shapes]
        return [
            part.view(shape)
            for part, shape in zip(torch.split(flat, sizes), self.shapes, strict=True)
        ]

    @torch.no_grad()
    def load(self, flat: torch.Tensor) -> None:
        """Copy a flat tensor into the weights."""
        foreach_copy_(self.locals, self.views(flat))

    @torch.no_grad()
    def subtract(self, flat: torch.Tensor) -> None:
        """Subtract a flat tensor from the weights."""
        foreach_sub_(self.locals, self.views(flat))


def in_order(
    parameters: Sequence[LocalParameter], buckets: Iterable[tuple[Bucket, torch.Tensor]]
) -> list[torch.Tensor]:
    """Return flat tensors as tensors in the order of `parameters`; those in no bucket are
    unchanged."""
    found = {
        id(each): part
        for bucket, flat in buckets
        for each, part in zip(bucket.parameters, bucket.views(flat), strict=True)
    }
    return [found.get(id(each), each.local.detach()) for each in parameters]


def even_buckets(parameters: Sequence[LocalParameter], count: int) -> list[Bucket]:
    """Divide parameters into `count` buckets of nearly equal size, in their order; into fewer if
    there are fewer parameters."""
    count = max(1, min(count, len(parameters)))
    ends = list(accumulate(each.local.numel() for each in parameters))
    total = ends[-1]
    buckets: list[list[LocalParameter]] = [[] for _ in range(count)]
    for number, (each, end) in enumerate(zip(parameters, ends, strict=True)):
        middle = end - each.local.numel() / 2
        # Every bucket gets at least one: enough parameters remain for the following buckets.
        earliest = max(0, count - (len(parameters) - number))
        latest = next((empty for empty in range(count) if not buckets[empty]), count - 1)
        wanted = int(middle * count / max(1, total))
        buckets[min(max(wanted, earliest), latest)].append(each)
    return [Bucket(tuple(bucket)) for bucket in buckets if bucket]


def buckets_by_size(parameters: Sequence[LocalParameter], bucket_bytes: int) -> list[Bucket]:
    """Divide parameters into buckets of about `bucket_bytes`, in the order of backward: the last of
    the model first. The first bucket is small, so that communication begins early."""
    buckets: list[list[LocalParameter]] = [[]]
    size, most = 0, min(bucket_bytes, 1 << 20)
    for each in reversed(parameters):
        if buckets[-1] and size + each.local.nbytes > most:
            buckets.append([])
            size, most = 0, bucket_bytes
        buckets[-1].append(each)
        size += each.local.nbytes
    return [Bucket(tuple(bucket)) for bucket in buckets if bucket]
