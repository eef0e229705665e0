"""Gradients that are communicated bucket by bucket during backward.

The buckets are fixed, unlike those of DistributedDataParallel, which change after its first step.
"""

import functools
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import torch

from paceline.comm.dtensor import local_tensor
from paceline.specs import SyncSettings
from paceline.sync.buckets import Bucket, buckets_by_size
from paceline.sync.hook import Hook, HookContext


class Bucketed(Hook):
    """Communicates the gradients of a bucket as soon as all of them are complete."""

    replicas_differ = False

    def __init__(self, settings: SyncSettings, context: HookContext) -> None:
        super().__init__(settings, context)
        self._buckets = buckets_by_size(context.learning, context.bucket_bytes)
        self._missing = [len(bucket.parameters) for bucket in self._buckets]
        self._begun: list[Future[None]] = []
        self._open = False
        self._step = 0
        self._hooks = [
            each.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                functools.partial(self._arrived, number)
            )
            for number, bucket in enumerate(self._buckets)
            for each in bucket.parameters
        ]

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """Mark the block's backward as the one that completes the gradients as they arrive."""
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def before_forward(self, step: int) -> None:
        """Reset the count of missing gradients."""
        self._step = step
        self._missing = [len(bucket.parameters) for bucket in self._buckets]

    def after_backward(self, step: int) -> None:
        """Communicate the remaining buckets, and wait for all."""
        del step
        self._begin_ready(all_of_them=True)
        for begun in self._begun:
            self.context.lane.finish(begun)
        self._begun.clear()

    def close(self) -> None:
        """Remove the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()

    def _communicate(self, number: int) -> None:
        """Replace the gradients of a bucket by those of all replicas; called on the lane."""
        raise NotImplementedError

    def _arrived(self, number: int, parameter: torch.Tensor) -> None:
        del parameter
        if self._open:
            self._missing[number] -= 1
            self._begin_ready()

    def _begin_ready(self, *, all_of_them: bool = False) -> None:
        """Begin buckets in their order, up to the first that is not complete."""
        while len(self._begun) < len(self._buckets):
            number = len(self._begun)
            if self._missing[number] > 0 and not all_of_them:
                return
            communicate = functools.partial(self._communicate, number)
            self._begun.append(self.context.lane.begin(communicate))


def gradients_of(bucket: Bucket) -> list[torch.Tensor]:
    """Return this worker's part of each gradient; zeros for a parameter that the model did not use
    here, because another worker may have used it."""
    for each in bucket.parameters:
        if each.parameter.grad is None:
            each.parameter.grad = torch.zeros_like(each.parameter)
    return [local_tensor(each.parameter.grad) for each in bucket.parameters]  # type: ignore[arg-type]
