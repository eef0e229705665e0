"""Build and arrange a model within the memory of one worker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch
from torch import nn

from paceline.comm.groups import Groups
from paceline.parallel.deferred.deferral import Deferral
from paceline.specs import Layout

_Made = TypeVar("_Made")

_PART = 4
"""A model may take this part of a worker's memory before its weights give memory back: the trial
needs the rest for activations and for gradients of this worker's part."""


class WithinMemory:
    """The memory of one worker while its model is built, tried and arranged."""

    def __init__(self, layout: Layout, groups: Groups, stack: ExitStack) -> None:
        self._layout, self._groups, self._stack = layout, groups, stack
        self._deferral: Deferral | None = None

    def build(self, model: Callable[[], nn.Module]) -> nn.Module:
        """Build a model; one that is too large for this worker has no memory until it is used."""
        divided = self._layout.workers > self._layout.replicas
        if not divided or self._groups.memory_bytes(self._groups.device) is None:
            return model()
        if self._deferral is not None:
            return self.arrange(model)
        with ExitStack() as stack:
            deferral = stack.enter_context(Deferral(self._budget_bytes))
            with deferral.recording():
                built = model()
            if deferral.is_needed:
                self._deferral = deferral
                self._stack.push(stack.pop_all())
            else:
                deferral.settle()
        return built

    def arrange(self, change: Callable[[], _Made]) -> _Made:
        """Change a model in place; what is new has no memory either, if the model has none."""
        if self._deferral is None:
            return change()
        with self._deferral.recording():
            return change()

    def prepare_shards(self) -> None:
        """Keep no weights in memory any more while they are sharded or let go, or keep all of a
        model that is neither."""
        if self._deferral is not None and self._layout.shards * self._layout.pipeline > 1:
            self._deferral.release()
        elif self._deferral is not None:
            self._deferral.settle()

    def settle(self) -> None:
        """Give this worker's part of the model its memory."""
        if self._deferral is not None:
            self._deferral.settle()

    def _budget_bytes(self, device: torch.device) -> int:
        # On the host, weights only wait to be moved to the worker's device.
        devices = {device, self._groups.device}
        return min(self._groups.memory_bytes(each) or 0 for each in devices) // _PART


@contextmanager
def within_memory(layout: Layout, groups: Groups) -> Iterator[WithinMemory]:
    """Build a model inside the block; afterwards, all that is left of it has its memory."""
    with ExitStack() as stack:
        memory = WithinMemory(layout, groups, stack)
        yield memory
        memory.settle()
