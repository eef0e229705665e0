"""An all-reduce of the gradients with identical bits on any number of workers.

A batch has a fixed number of parts, each with its own forward and backward, and the gradients of
the parts are added in the order of a tree over their indices (`tree.py`). A worker adds the
complete subtrees among its own parts. Each worker then owns a piece of every bucket: all workers
send it their sums of that piece, it adds them in the tree's order, and all gather the results. With
a subtree each, workers send as many bytes as in a ring all-reduce.
"""

import functools
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any, Protocol

import torch

from paceline.comm.torch_internals import foreach_copy_
from paceline.specs import PacelineError
from paceline.sync.bucketed import Bucketed, gradients_of
from paceline.sync.hook import HookContext
from paceline.sync.modes.canonical import Canonical
from paceline.sync.modes.canonical.tree import Subtree, TreeSum, subtrees


class Tracked(Protocol):
    """Buffers that a forward changes, such as running statistics: every part begins with the same
    values, and the step applies the mean change over the parts."""

    size: int
    """Number of values that can change."""

    def rewind(self) -> None:
        """Undo the changes of the previous part."""

    def change(self) -> torch.Tensor:
        """Return the changes of this part, as a row of 32-bit numbers."""

    def conclude(self, mean_change: torch.Tensor) -> None:
        """Apply the mean change of all parts."""


class CanonicalHook(Bucketed):
    """Adds gradients in one order, independent of which worker has which parts."""

    settings: Canonical

    def __init__(self, settings: Canonical, context: HookContext) -> None:
        super().__init__(settings, context)
        # cuBLAS on GPUs is deterministic only with this setting.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self._ranges: list[range] = []
        self._owed: list[list[Subtree]] = []
        """The subtrees of each worker."""
        self._parts = 0
        self._last: int | None = None
        self._sums: list[TreeSum[torch.Tensor]] = []
        self._tracked: Tracked | None = None
        self._changes: TreeSum[torch.Tensor] = TreeSum(0, _add)

    def divide(self, own: range) -> None:
        """Announce this worker's parts; a collective call.

        Workers also agree on the number of threads, because the order of sums inside a layer
        depends on it. They use the most common number, so that a joining worker adopts that of the
        others.
        """
        said = torch.tensor([own.start, own.stop, torch.get_num_threads()])
        rows = [
            row.tolist()
            for row in self.context.transport.gather(said.to(self.context.transport.device))
        ]
        self._ranges, self._parts = [range(begin, end) for begin, end, _ in rows], 0
        _use_threads(statistics.mode(threads for _, _, threads in rows))

    def begin(self, parts: int, tracked: Tracked) -> None:
        """Begin a step in which the first `parts` parts have samples."""
        if parts != self._parts:
            clipped = (
                range(min(some.start, parts), min(some.stop, parts)) for some in self._ranges
            )
            self._owed = [subtrees(some, parts) for some in clipped]
        self._parts, self._last, self._tracked = parts, None, tracked
        self._sums = [self._tree() for _ in self._buckets]
        self._changes = self._tree()

    @contextmanager
    def part(self, number: int, *, last: bool) -> Iterator[None]:
        """Run a part's forward and backward in the block; `last`: it is this worker's last."""
        assert self._tracked is not None
        self._tracked.rewind()
        if last:
            self._last = number
        with _deterministic(), self.last_backward() if last else nullcontext():
            yield
        if self._tracked.size:
            self._changes.push(Subtree(number, 0), self._tracked.change())
        if not last:
            for row, tree in zip(self._buckets, self._sums, strict=True):
                tree.push(Subtree(number, 0), row.flat(gradients_of(row)))
                for each in row.parameters:
                    each.parameter.grad = None

    def after_backward(self, step: int) -> None:
        """Communicate the remaining buckets and the changes of buffers, and wait for all."""
        super().after_backward(step)
        tracked, lane = self._tracked, self.context.lane
        if tracked is not None and tracked.size:
            sums = functools.partial(self._over_all, self._changes, tracked.size, torch.float32)
            tracked.conclude(lane.finish(lane.begin(sums)) / self._parts)

    def numbers(self) -> dict[str, Any]:
        """Return the settings that determine the bits."""
        return {"parts": self.settings.parts, "threads": torch.get_num_threads()}

    def resuming(self, numbers: Mapping[str, Any]) -> None:
        """Continue with the same parts and the same number of threads."""
        before, now = numbers.get("parts"), self.settings.parts
        if before not in (None, now):
            raise PacelineError(
                f"the checkpoint was trained with canonical:parts={before}, and this run with"
                f" parts={now}: its bits would differ",
                fix=f"use --sync canonical:parts={before}",
            )
        _use_threads(numbers.get("threads", torch.get_num_threads()))

    def _tree(self) -> TreeSum[torch.Tensor]:
        return TreeSum(self._parts, _add)

    @torch.no_grad()
    def _communicate(self, number: int) -> None:
        row, tree = self._buckets[number], self._sums[number]
        gradients = gradients_of(row)
        flat = row.flat(gradients)
        if self._last is not None:
            tree.push(Subtree(self._last, 0), flat)
        summed = self._over_all(tree, len(flat), flat.dtype)
        foreach_copy_(gradients, row.views(summed))

    def _over_all(self, tree: TreeSum[torch.Tensor], size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the sum over all parts, of rows of `size` numbers."""
        transport = self.context.transport
        if transport.workers == 1:
            (whole,) = tree.values
            return whole
        each = -(-size // transport.workers)
        edges = [min(size, owner * each) for owner in range(transport.workers + 1)]
        pieces = [slice(begin, end) for begin, end in pairwise(edges)]
        message = torch.zeros(each, dtype=dtype, device=transport.device)
        own = pieces[transport.rank]
        self._collect(tree.values, pieces, message[: own.stop - own.start])
        return torch.cat(transport.gather(message))[:size]

    def _collect(
        self, values: Sequence[torch.Tensor], pieces: Sequence[slice], into: torch.Tensor
    ) -> None:
        """Send each worker its piece, and add the piece that this worker owns."""
        transport, length = self.context.transport, len(into)
        sent: dict[int, torch.Tensor] = {}
        received: dict[int, torch.Tensor] = {}
        for other, (piece, theirs) in enumerate(zip(pieces, self._owed, strict=True)):
            if other != transport.rank:
                if values and piece.start < piece.stop:
                    cut = [value[piece] for value in values]
                    sent[other] = cut[0] if len(cut) == 1 else torch.cat(cut)
                if theirs and length:
                    received[other] = into.new_empty(len(theirs) * length)
        transport.swap(sent, received)
        if not length:
            return
        received[transport.rank] = torch.cat(
            [into[:0], *(v[pieces[transport.rank]] for v in values)]
        )
        tree = self._tree()
        for worker, nodes in enumerate(self._owed):
            for number, node in enumerate(nodes):
                tree.push(node, received[worker][number * length : (number + 1) * length])
        (whole,) = tree.values
        into.copy_(whole)


def _add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if right.device.type != "cpu":
        # The tensor may come from another stream, which would reuse its memory while it is read
        # here.
        right.record_stream(torch.get_device_module(right.device.type).current_stream())
    return left.add_(right)


def _use_threads(count: int) -> None:
    if count != torch.get_num_threads():
        torch.set_num_threads(count)


@contextmanager
def _deterministic() -> Iterator[None]:
    """Make PyTorch deterministic inside the block; reject operations that cannot be."""
    before = torch.get_deterministic_debug_mode()
    # Like torch.use_deterministic_algorithms, which also loads a compiler, for seconds.
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        operation, found, _ = str(error).partition(" does not have a deterministic implementation")
        if not found:
            raise
        raise PacelineError(
            f"--sync canonical: the model uses {operation}, for which PyTorch has no"
            " deterministic implementation",
            fix="use another operation in its place, or leave --sync canonical out",
        ) from error
    finally:
        torch.set_deterministic_debug_mode(before)
