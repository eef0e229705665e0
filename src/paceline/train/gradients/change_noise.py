"""Measures the noise of replicas that take local steps, from their changes of the weights.

Between two rounds, replicas have no common gradient, but each round averages their changes since
the last one. To first order, a change is the rate times the sum of its steps' gradients: the
changes differ by the noise of a round's samples, and their mean has the signal.
"""

from collections import deque
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.comm.host_copies import DelayedReading
from paceline.learning.noise_scale import momentum_share, variance_and_signal
from paceline.parallel.parallel_model import ParallelModel
from paceline.specs import Layout
from paceline.sync.buckets import Bucket
from paceline.sync.modes._local_steps_hook import LocalStepsHook
from paceline.user.training import Training

ACCURATE = ("none", "bf16", "int8")
"""Compressions whose mean of the changes is close enough to the true one."""


def measures_changes(mode: LocalStepsHook, training: Training) -> bool:
    """Return whether changes of weights tell the noise: a close mean, of one loss's changes."""
    return mode.settings.compress in ACCURATE and training.phases is None


class ChangeNoise:
    """The rounds of one worker: norms of its replica's changes, and of the mean of all."""

    def __init__(
        self,
        layout: Layout,
        groups: Groups,
        mode: LocalStepsHook,
        parallel_model: ParallelModel,
        optimizer: torch.optim.Optimizer,
        every: int,
    ) -> None:
        """`every`: least steps between two measured rounds."""
        self._layout, self._groups, self._optimizer = layout, groups, optimizer
        self._counted = {id(each) for each in parallel_model.counted()}
        self._replica = layout.position(groups.placement.rank).replica
        self._local_steps = mode.settings.every
        self._rounds = max(1, every // self._local_steps)
        self._steps: deque[tuple[int, Any, Any]] = deque(maxlen=self._local_steps)
        """The last local steps: number, this worker's part of the batch, 1 / the batch's weight."""
        self._launched: tuple[int, Any, Any] | None = None
        """The round that is measured: its last step, and the means of the same over its steps."""
        self._on_their_way: deque[tuple[int, DelayedReading]] = deque()
        mode.watch = self

    def took(self, step: int, mine: Any, whole: Any) -> None:
        """Note the weights of this worker's local batch and of the global batch."""
        if self._steps and self._steps[-1][0] == step:  # evaluated again by its optimizer
            self._steps.pop()
        self._steps.append((step, mine / whole, 1 / whole))

    def square(self, bucket: Bucket, change: torch.Tensor) -> torch.Tensor:
        """Return this worker's share of the squared norm of a bucket's changes."""
        counts = [id(each.parameter) in self._counted for each in bucket.parameters]
        views = zip(bucket.views(change), counts, strict=True)
        counted = [change] if all(counts) else [each for each, counts in views if counts]
        norms = [torch.linalg.vector_norm(each) for each in counted]
        return torch.stack([*norms, torch.zeros((), device=change.device)]).square().sum()

    def launched(self, step: int) -> None:
        """Note the steps of the round that begins; those before a restart are not known."""
        count, self._launched = len(self._steps), None
        if count == self._local_steps and not step // self._local_steps % self._rounds:
            shares, inverses = (sum(each[at] for each in self._steps) / count for at in (1, 2))
            self._launched = step, shares, inverses

    def landed(self, own: torch.Tensor, mean: torch.Tensor) -> None:
        """Begin to add up the squared norms of all workers' changes."""
        if self._launched is None:
            return
        step, share, inverse = self._launched
        layout, replicas = self._layout, self._layout.replicas
        copies = layout.workers // layout.data_workers
        values = torch.zeros(2 * replicas + 2, device=self._groups.device)
        values[self._replica] = own
        # All slices and stages of a replica have the same local batches.
        values[replicas + self._replica] = share / copies
        values[-2], values[-1] = mean / replicas, inverse / layout.workers
        self._on_their_way.append((step, DelayedReading(values, self._groups.sum_later(values))))

    def rows(self, *, all_of_them: bool) -> list[tuple[int, float, float, float]]:
        """Return step, samples of a step, variance and signal of the rounds whose sums are there,
        or of all of them."""
        found = []
        while self._on_their_way and (all_of_them or self._on_their_way[0][1].is_there):
            step, summed = self._on_their_way.popleft()
            *values, mean_square, inverse = summed.values().tolist()
            replicas = len(values) // 2
            parts = [
                (square, share)
                for square, share in zip(values[:replicas], values[replicas:], strict=True)
                if share > 0
            ]
            if len(parts) < 2:
                continue
            # Changes are averaged without weights, so that each has its share times the replicas.
            squares = sum(square / share for square, share in parts) / replicas**2
            weight = self._local_steps / inverse
            variance, signal = variance_and_signal(squares, mean_square, len(parts), weight)
            variance /= momentum_share(self._momentum, self._local_steps)
            found.append((step, 1 / inverse, variance, signal))
        return found

    @property
    def _momentum(self) -> float:
        group = self._optimizer.param_groups[0]
        return float(group["betas"][0] if "betas" in group else group.get("momentum", 0.0))
