"""The mean gradient, every step, compressed: bucket by bucket while backward goes on.

Without compression DistributedDataParallel and FSDP2 do this, unless the way to agree may change
under way (`auto.py`). The buckets here are fixed, which DDP's are not after its first step: what
compression makes of a gradient depends on what it is packed together with, and a run that goes on
from a checkpoint is to go on as it would have.
"""

import functools
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import torch

from paceline.sync.averaging import Averager
from paceline.sync.flat import Row, buckets_of
from paceline.sync.mode import Bound, Kept, Mode, local_part


class MeanGradients(Mode):
    """Gradients of a bucket are exchanged as soon as all of them are there."""

    replicas_differ = False

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound)
        self._averager = Averager(bound.sync, bound.transport)
        self._buckets = buckets_of(bound.learning, bound.bucket_bytes)
        self._rests = [row.zeros() if self._averager.loses else None for row in self._buckets]
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

    def kept(self) -> Iterator[Kept]:
        """What compression has lost so far."""
        for row, rest in zip(self._buckets, self._rests, strict=True):
            if rest is not None:
                for of, part in zip(row.held, row.views(rest), strict=True):
                    yield Kept("rest", of, part, common=False)

    def close(self) -> None:
        """Gradients are the worker's own again."""
        for hook in self._hooks:
            hook.remove()

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
            exchange = functools.partial(
                self._exchange, self._buckets[number], self._rests[number], self._step
            )
            self._begun.append(self.bound.lane.begin(exchange))

    @torch.no_grad()
    def _exchange(self, row: Row, rest: torch.Tensor | None, step: int) -> None:
        gradients = [_gradient(each.parameter) for each in row.held]
        flat = self._averager.average(row.flat(gradients), rest, row.shapes, step=step)
        torch._foreach_copy_(gradients, row.views(flat))


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    """What this worker holds of a gradient; zeros where the model did not use the parameter here,
    since another worker may have."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return local_part(parameter.grad)
