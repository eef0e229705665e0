"""Gradients that are exchanged bucket by bucket while backward goes on.

The buckets are fixed, which those of DistributedDataParallel are not after its first step.
"""

import functools
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import torch

from paceline.comm.dtensor import local_tensor
from paceline.sync.flat import Row, buckets_of
from paceline.sync.mode import Bound, Mode


class Bucketed(Mode):
    """Gradients of a bucket are exchanged as soon as all of them are there."""

    replicas_differ = False

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound)
        self._buckets = buckets_of(bound.learning, bound.bucket_bytes)
        self._missing = [len(row.held) for row in self._buckets]
        self._begun: list[Future[None]] = []
        self._open = False
        self._step = 0
        self._hooks = [
            each.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                functools.partial(self._arrived, number)
            )
            for number, row in enumerate(self._buckets)
            for each in row.held
        ]

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """A block with the backward whose gradients are complete as they arrive."""
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def before_forward(self, step: int) -> None:
        """The step begins."""
        self._step = step
        self._missing = [len(row.held) for row in self._buckets]

    def after_backward(self, step: int) -> None:
        """Exchange what has not been, and wait for all of it."""
        del step
        self._begin_ready(all_of_them=True)
        for begun in self._begun:
            self.bound.lane.finish(begun)
        self._begun.clear()

    def close(self) -> None:
        """Gradients are the worker's own again."""
        for hook in self._hooks:
            hook.remove()

    def _exchange(self, number: int) -> None:
        """Make the gradients of a bucket those that all agree on; called on the lane."""
        raise NotImplementedError

    def _arrived(self, number: int, parameter: torch.Tensor) -> None:
        del parameter
        if self._open:
            self._missing[number] -= 1
            self._begin_ready()

    def _begin_ready(self, *, all_of_them: bool = False) -> None:
        """Begin the exchange of buckets, in their order, up to the first that is not complete."""
        while len(self._begun) < len(self._buckets):
            number = len(self._begun)
            if self._missing[number] > 0 and not all_of_them:
                return
            exchange = functools.partial(self._exchange, number)
            self._begun.append(self.bound.lane.begin(exchange))


def gradients_of(row: Row) -> list[torch.Tensor]:
    """What this worker holds of gradients; zeros where the model did not use a parameter here,
    since another worker may have."""
    for each in row.held:
        if each.parameter.grad is None:
            each.parameter.grad = torch.zeros_like(each.parameter)
    return [local_tensor(each.parameter.grad) for each in row.held]  # type: ignore[arg-type]
