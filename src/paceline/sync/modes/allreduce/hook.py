"""An all-reduce of the gradients in every step, bucket by bucket during backward.

Without compression, DistributedDataParallel and FSDP2 do this, unless the mode may change during
the run (`auto`). The buckets are fixed, because a gradient's compression depends on the numbers in
its bucket, and a resumed run must continue exactly.
"""

from collections.abc import Iterator

import torch

from paceline.comm.torch_internals import foreach_copy_
from paceline.sync.averaging import Averager
from paceline.sync.bucketed import Bucketed, gradients_of
from paceline.sync.compression import CompressedSync
from paceline.sync.hook import Bound, EngineHook, Hook, Kept


class MeanGradients(Bucketed):
    """Averages each bucket over the replicas."""

    def __init__(self, settings: CompressedSync, bound: Bound) -> None:
        super().__init__(settings, bound)
        self._averager = Averager(settings, bound.transport)
        self._residuals = [row.zeros() if self._averager.loses else None for row in self._buckets]

    def kept(self) -> Iterator[Kept]:
        """Yield the compression errors so far."""
        for row, residual in zip(self._buckets, self._residuals, strict=True):
            if residual is not None:
                for of, part in zip(row.held, row.views(residual), strict=True):
                    yield Kept("rest", of, part, common=False)

    @torch.no_grad()
    def _communicate(self, number: int) -> None:
        row, residual = self._buckets[number], self._residuals[number]
        gradients = gradients_of(row)
        flat = self._averager.average(row.flat(gradients), residual, row.shapes, step=self._step)
        foreach_copy_(gradients, row.views(flat))


def allreduce_hook(settings: CompressedSync, bound: Bound) -> Hook:
    """Return the hook that averages gradients bucket by bucket; a no-op for one replica."""
    alone = bound.transport.workers == 1
    return EngineHook(settings, bound) if alone else MeanGradients(settings, bound)
