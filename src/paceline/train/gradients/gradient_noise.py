"""Measures the gradient noise of a training while it runs, from norms of its parts' gradients."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from paceline.comm.groups import Groups
from paceline.comm.torch_internals import BatchNormLayer
from paceline.learning.noise_scale import variance_and_signal
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.step.part_norms import PartNorms
from paceline.parallel.step.whole_batch import gather_calls
from paceline.specs import Layout, Noise
from paceline.sync.hook import Hook
from paceline.sync.modes.canonical.hook import CanonicalHook
from paceline.user.training import Training

MOST_UNWRITTEN = 10
"""Measured steps in an event."""


@dataclass
class _Sum:
    """A measured step whose sum over the workers is under way."""

    step: int
    work: "dist.Work | None"
    values: torch.Tensor
    """Mean of the parts' squared norms, and the number of parts."""
    weight: Any
    """That of the global batch."""
    squared_norm: torch.Tensor | None = None
    """Squared norm of the global batch's gradient."""


def gradient_noise(
    training: Training,
    layout: Layout,
    groups: Groups,
    mode: Hook,
    model: nn.Module,
    write_once: Callable[..., None],
) -> "GradientNoise":
    """Return what measures the noise of a training, or never measures where that has no meaning.

    Batch normalization makes the samples of a batch depend on each other; other modes do not have
    the batch's gradient in one place.
    """
    normalizes = any(isinstance(each, BatchNormLayer) for each in model.modules())
    is_exact = mode.settings.by_engine or isinstance(mode, CanonicalHook)
    every = training.noise_every if is_exact and not normalizes else 0
    return GradientNoise(layout, groups, every, write_once)


class GradientNoise:
    """Measures every few steps how much the gradients of a batch's parts differ.

    A part is what has a backward of its own: a worker's local batch, or a micro-batch. Each worker
    adds one number, and reads the sum at the next measured step, so that nothing waits for it.
    """

    def __init__(
        self, layout: Layout, groups: Groups, every: int, write_once: Callable[..., None]
    ) -> None:
        self._layout, self._groups = layout, groups
        self._every, self._write_once = every, write_once
        self._summing: _Sum | None = None
        self._unwritten: list[tuple[int, float, float, float]] = []
        self._gathers = 0

    def norms(self, parallel_model: ParallelModel, step: int, parts: int) -> PartNorms | None:
        """Return what sees the gradients of this step's parts; None if it is not measured.

        `parts`: those of all workers, which decide alike.
        """
        if not self._every or step % self._every or parts < 2:
            return None
        self._read()
        self._gathers = gather_calls()
        return parallel_model.part_norms()

    def learned(
        self, step: int, norms: PartNorms, weights: Sequence[Any], whole: Any, scale: Any
    ) -> None:
        """Begin to add up the norms of all workers' parts.

        `weights` and `whole`: weights of this worker's parts, and of the global batch. `scale`:
        what a gradient of the mean over a part was multiplied by, but for the part's share.
        """
        squares = norms.squares()
        if len(squares) == 1 and len(weights) > 1:
            weights = [sum(weights[1:], weights[0])]
        # Without gradients to see, or with parts that depend on each other, there is no answer; but
        # all workers take part in the sum.
        mean = count = torch.full((), math.nan, device=self._groups.device)
        if len(squares) == len(weights) and gather_calls() == self._gathers:
            mean = count = torch.zeros((), device=self._groups.device)
            for square, weight in zip(squares, weights, strict=True):
                share = torch.as_tensor(weight / whole * scale, device=mean.device)
                mean = mean + torch.where(share > 0, square / (share * scale), 0.0)
                count = count + (share > 0)
        # All slices and stages of a replica have the same parts.
        count = count * (self._layout.data_workers / self._layout.workers)
        values = torch.stack([mean, count])
        self._summing = _Sum(step, self._groups.sum_later(values), values, whole)

    def waits_for_norm(self, step: int) -> bool:
        """Return whether this step is measured and lacks the norm of the whole gradient."""
        return self._summing is not None and self._summing.step == step

    def synchronized(self, squared_norm: torch.Tensor) -> None:
        """Take the squared norm of the global batch's gradient, neither scaled nor clipped."""
        assert self._summing is not None
        self._summing.squared_norm = squared_norm.clone()

    def finish(self) -> None:
        """Write all that was measured; the workers of the last step are still there."""
        self._read()
        self.write()

    def write(self) -> None:
        """Write what was measured, but for a step whose sum is under way: its group may be gone."""
        if self._unwritten:
            steps, samples, variance, signal = map(list, zip(*self._unwritten, strict=True))
            self._write_once(Noise, steps=steps, samples=samples, variance=variance, signal=signal)
            self._unwritten = []

    def _read(self) -> None:
        summed, self._summing = self._summing, None
        if summed is None or summed.squared_norm is None:
            return
        if summed.work is not None:
            summed.work.wait()
        mean_square, parts = summed.values.tolist()
        found = float(summed.squared_norm), float(summed.weight)
        if not math.isfinite(mean_square + found[0]) or round(parts) < 2:
            return
        variance, signal = variance_and_signal(mean_square, found[0], round(parts), found[1])
        self._unwritten.append((summed.step + 1, found[1], variance, signal))
        if len(self._unwritten) >= MOST_UNWRITTEN:
            self.write()
