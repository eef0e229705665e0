"""The mean gradient, every step, compressed: bucket by bucket while backward goes on.

Without compression DistributedDataParallel and FSDP2 do this, unless the way to agree may change
under way (`auto.py`). That the buckets are fixed counts here: what compression makes of a gradient
depends on what it is packed together with, and a run that goes on from a checkpoint is to go on as
it would have.
"""

from collections.abc import Iterator

import torch

from paceline.comm.torch_internals import foreach_copy_
from paceline.sync.averaging import Averager
from paceline.sync.bucketed import Bucketed, gradients_of
from paceline.sync.mode import Bound, Kept


class MeanGradients(Bucketed):
    """The mean over the workers of each bucket."""

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound)
        self._averager = Averager(bound.sync, bound.transport)
        self._rests = [row.zeros() if self._averager.loses else None for row in self._buckets]

    def kept(self) -> Iterator[Kept]:
        """What compression has lost so far."""
        for row, rest in zip(self._buckets, self._rests, strict=True):
            if rest is not None:
                for of, part in zip(row.held, row.views(rest), strict=True):
                    yield Kept("rest", of, part, common=False)

    @torch.no_grad()
    def _exchange(self, number: int) -> None:
        row, rest = self._buckets[number], self._rests[number]
        gradients = gradients_of(row)
        flat = self._averager.average(row.flat(gradients), rest, row.shapes, step=self._step)
        foreach_copy_(gradients, row.views(flat))
