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
from paceline.sync.hook import EngineHook, Hook, HookContext, SyncTensor


class MeanGradients(Bucketed):
    """Averages each bucket over the replicas."""

    def __init__(self, settings: CompressedSync, context: HookContext) -> None:
        super().__init__(settings, context)
        self._averager = Averager(settings, context.transport)
        self._residuals = [
            bucket.zeros() if self._averager.loses else None for bucket in self._buckets
        ]

    def saved_tensors(self) -> Iterator[SyncTensor]:
        """Yield the compression errors so far."""
        for bucket, residual in zip(self._buckets, self._residuals, strict=True):
            if residual is not None:
                for of, part in zip(bucket.parameters, bucket.views(residual), strict=True):
                    yield SyncTensor("rest", of, part, common=False)

    @torch.no_grad()
    def _communicate(self, number: int) -> None:
        bucket, residual = self._buckets[number], self._residuals[number]
        gradients = gradients_of(bucket)
        flat = self._averager.average(
            bucket.flat(gradients), residual, bucket.shapes, step=self._step
        )
        foreach_copy_(gradients, bucket.views(flat))


def allreduce_hook(settings: CompressedSync, context: HookContext) -> Hook:
    """Return the hook that averages gradients bucket by bucket; a no-op for one replica."""
    alone = context.transport.workers == 1
    return EngineHook(settings, context) if alone else MeanGradients(settings, context)
