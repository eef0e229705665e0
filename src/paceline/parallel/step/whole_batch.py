"""All rows of the global batch inside a loss or a model: `paceline.gather`.

A loss that compares samples with each other, such as a contrastive one, needs the rows of all
workers. Each worker's loss is scaled by its fraction of the global batch times the number of
workers, and parameter gradients are averaged. So it is exact to sum the gradients of gathered rows
over the workers, whether every worker computes the loss of all rows or only that of its own rows.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from paceline.comm.collectives import all_gather, reduce_scatter
from paceline.comm.dtensor import full_tensor
from paceline.data.batches import Batches
from paceline.data.loader import Batch
from paceline.specs import PacelineError


@dataclass
class WholeBatch:
    """A global batch in progress: this worker's local batch, and its division over workers."""

    local: Batch
    batches: Batches
    forwards: int
    """Forwards of the local batch: its micro-batches."""
    group: "dist.ProcessGroup | None"
    """The workers that divide the batch; None for a single one."""
    apart: str | None = None
    """The synchronization mode, if workers compute its steps separately."""

    @property
    def sizes(self) -> list[int]:
        """Number of samples of each worker, without padding."""
        return self.batches.local_batches(self.local.global_samples)

    def check(self, rows: torch.Tensor) -> None:
        """Raise if these are not the rows of the local batch, or cannot be gathered."""
        if self.forwards > 1:
            raise PacelineError(
                f"paceline.gather was called in a step of {self.forwards} micro-batches, of which"
                " the first cannot see the rows of the last",
                fix="train without --micro-batch and pipeline, on more workers if memory is short",
            )
        if self.apart is not None:
            raise PacelineError(
                f"paceline.gather was called with --sync {self.apart}, in which workers compute"
                " their steps separately",
                fix="leave --sync out",
            )
        if rows.ndim == 0 or len(rows) != self.local.rows:
            raise PacelineError(
                f"paceline.gather was given a tensor of shape {tuple(rows.shape)}, but the local"
                f" batch has {self.local.rows} samples",
                fix="give it one row per sample; gather each view of the samples separately",
            )


# Not a context variable: on accelerators, backward recomputes blocks in threads of its own.
_current: WholeBatch | None = None
_calls = 0


def gather_calls() -> int:
    """Return how often this process has called `gather`: a check asks whether a loss does."""
    return _calls


def gathering(batch: WholeBatch) -> AbstractContextManager[None]:
    """Let `gather` return all rows of this batch inside the block."""
    return _Gathering(batch)


class _Gathering(AbstractContextManager[None]):
    """A class, because a generator costs a step several microseconds."""

    __slots__ = ("_batch", "_before")

    def __init__(self, batch: WholeBatch) -> None:
        self._batch, self._before = batch, _current

    def __enter__(self) -> None:
        global _current  # a fact about the process: it takes one step at a time
        self._before, _current = _current, self._batch

    def __exit__(self, *error: object) -> None:
        global _current  # noqa: PLW0603 -- as above
        _current = self._before
        self._batch.group = None  # a loss that the caller keeps must not keep the group


def gather(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows of all workers, in the order of the samples of the global batch.

    `rows` has one row per sample of the local batch. Gradients flow back to the worker that each
    row comes from. On one worker, and outside a step or an evaluation, this returns `rows`.
    """
    global _calls  # noqa: PLW0603 -- a fact about the process
    _calls += 1
    batch = _current
    if batch is None:
        return rows
    batch.check(rows)
    if batch.group is None:
        return rows
    gathered: torch.Tensor = _Gather.apply(full_tensor(rows), batch)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """An all-gather of rows; backward sums the gradients of each row on its worker."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, batch: WholeBatch) -> torch.Tensor:
        ctx.batch, ctx.sizes, ctx.rows = batch, batch.sizes, len(rows)
        most, own = max(ctx.sizes), ctx.sizes[batch.batches.rank]
        sent = rows if own == most == len(rows) else _padded(rows[:own], most)
        received = rows.new_empty(len(ctx.sizes) * most, *rows.shape[1:])
        all_gather(received, sent.contiguous(), batch.group)
        if min(ctx.sizes) == most:
            return received
        parts = zip(torch.split(received, most), ctx.sizes, strict=True)
        return torch.cat([part[:size] for part, size in parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        batch, most = ctx.batch, max(ctx.sizes)
        parts = [_padded(part, most) for part in torch.split(gradient, ctx.sizes)]
        summed = gradient.new_empty(most, *gradient.shape[1:])
        reduce_scatter(summed, torch.cat(parts), group=batch.group)
        return _padded(summed[: ctx.sizes[batch.batches.rank]], ctx.rows), None


def _padded(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Return `count` rows: the given ones, then zeros."""
    if len(rows) == count:
        return rows
    return torch.cat([rows, rows.new_zeros(count - len(rows), *rows.shape[1:])])
