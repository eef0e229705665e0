"""Squared gradient norms of the parts of a batch, before they are added up."""

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Self

import torch
from torch import nn


class PartNorms(AbstractContextManager["PartNorms"]):
    """The norms of the parts whose gradients are computed inside its block."""

    seconds = 0.0
    """Time of the host for all of them so far."""

    @abstractmethod
    def squares(self) -> list[torch.Tensor]:
        """Return this worker's share of the squared norm of each part, after the block.

        One number for each micro-batch, or one for the sum of all; none where they were not seen.
        A model that several workers hold parts of has their sum.
        """


class NormsByBackward(PartNorms):
    """Sees the gradients of each backward, where every part has one of its own."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = [each for each in parameters if each.requires_grad]
        self._norms: list[list[torch.Tensor]] = []
        self._weighted: list[list[torch.Tensor]] = []
        self.weighted_square: Callable[[nn.Parameter, torch.Tensor], torch.Tensor] | None = None
        """Set before the block: the squared norm of a gradient with weights of its coordinates."""
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> Self:
        self._norms, self._weighted = [], []
        began = time.perf_counter()
        self._hooks = [self._watched(parameter) for parameter in self._parameters]
        self.seconds += time.perf_counter() - began
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def squares(self) -> list[torch.Tensor]:
        """Return the squared norm of each part."""
        return [torch.stack(norms).square().sum() for norms in self._norms]

    def weighted_squares(self) -> list[torch.Tensor]:
        """Return the weighted squared norm of each part; none without `weighted_square`."""
        return [torch.stack(squares).sum() for squares in self._weighted if squares]

    def _watched(self, parameter: nn.Parameter) -> torch.utils.hooks.RemovableHandle:
        part = 0

        # A hook of the tensor sees this backward's gradient alone, before it is accumulated.
        def note(gradient: torch.Tensor) -> None:
            nonlocal part
            began = time.perf_counter()
            if part == len(self._norms):
                self._norms.append([])
                self._weighted.append([])
            self._norms[part].append(torch.linalg.vector_norm(gradient.detach()).float())
            if self.weighted_square is not None:
                self._weighted[part].append(self.weighted_square(parameter, gradient))
            part += 1
            self.seconds += time.perf_counter() - began

        handle: torch.utils.hooks.RemovableHandle = parameter.register_hook(note)  # type: ignore[no-untyped-call]
        return handle


Columns = Sequence[tuple[int, bool]]
"""Numbers of each parameter in a row of what FSDP2 reduces together, and whether they count."""


class ScatteredNorms(PartNorms):
    """Sees the gradients of a worker's local batch where shards reduce them.

    With micro-batches, FSDP2 reduces their sum.
    """

    def __init__(self, counted: Callable[[], Sequence[nn.Parameter]]) -> None:
        """`counted`: return the parameters that count on this worker; other slices have the same
        gradients of the others."""
        self._counted = counted
        self._norms: list[torch.Tensor] = []
        self._watches = False

    def columns(self, parameters: Sequence[nn.Parameter], shards: int) -> Columns:
        """Return the columns of parameters that are reduced together; none if all count."""
        known = {id(each) for each in self._counted()}
        trained = [each for each in parameters if each.requires_grad]
        columns = [
            (-(-each.shape[0] // shards) * math.prod(each.shape[1:]), id(each) in known)
            for each in trained
        ]
        return [] if all(counts for _, counts in columns) else columns

    def __enter__(self) -> Self:
        self._norms, self._watches = [], True
        return self

    def __exit__(self, *error: object) -> None:
        self._watches = False

    def see(self, gradients: torch.Tensor, shards: int, columns: Columns) -> None:
        """Take the gradients of a block, right before they are reduced, on the stream for that.

        They have a row for each shard.
        """
        if not self._watches:
            return
        began = time.perf_counter()
        self._norms += self._seen(gradients, shards, columns)
        self.seconds += time.perf_counter() - began

    def _seen(
        self, gradients: torch.Tensor, shards: int, columns: Columns
    ) -> Iterator[torch.Tensor]:
        counted = [gradients]
        if columns:
            rows, sizes = gradients.view(shards, -1), [size for size, _ in columns]
            if rows.shape[1] != sum(sizes):  # of some parameters only: nobody knows which
                yield torch.full((), math.nan, device=gradients.device)
                return
            parts = zip(torch.split(rows, sizes, dim=1), columns, strict=True)
            counted = [part for part, (_, counts) in parts if counts]
        for each in counted:
            yield torch.linalg.vector_norm(each).float()
        yield torch.zeros((), device=gradients.device)  # if none of them counts

    def squares(self) -> list[torch.Tensor]:
        """Return the squared norm of the local batch's gradient."""
        if not self._norms:
            return []
        if (device := self._norms[0].device).type != "cpu":
            # Backward has made this stream wait for the other one, which allocated them.
            now = torch.get_device_module(device.type).current_stream()
            for norm in self._norms:
                norm.record_stream(now)
        return [torch.stack(self._norms).square().sum()]
