"""Measures the gradient noise of a training while it runs, from norms of its parts' gradients."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.comm.host_copies import DelayedReading
from paceline.comm.torch_internals import BatchNormLayer
from paceline.learning.noise_scale import variance_and_signal
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.step.part_norms import NormsByBackward, PartNorms
from paceline.parallel.step.whole_batch import gather_calls
from paceline.specs import Layout, Noise, PacelineError
from paceline.sync.hook import Hook
from paceline.sync.modes._local_steps_hook import LocalStepsHook
from paceline.sync.modes.canonical.hook import CanonicalHook
from paceline.train.gradients.adam_weights import AdamWeights
from paceline.train.gradients.batch_plan import BatchPlan
from paceline.train.gradients.change_noise import ChangeNoise, measures_changes
from paceline.train.gradients.noise_growth import Unread
from paceline.train.gradients.noise_interval import USUAL_STEPS, NoiseInterval
from paceline.train.gradients.optimizer_family import family_of

MOST_UNWRITTEN = 10
"""Measured steps in an event."""
COLUMNS = ("steps", "samples", "variance", "signal", "weighted_variance", "weighted_signal")


def gradient_noise(
    plan: BatchPlan,
    layout: Layout,
    groups: Groups,
    mode: Hook,
    model: ParallelModel,
    optimizer: torch.optim.Optimizer,
) -> "GradientNoise":
    """Return what measures the noise of a training, or never measures where that has no meaning.

    Batch normalization makes the samples of a batch depend on each other; other modes do not have
    the batch's gradient in one place. With local steps, changes of weights stand in for it.
    """
    normalizes = any(isinstance(each, BatchNormLayer) for each in model.model.modules())
    is_exact = mode.settings.by_engine or isinstance(mode, CanonicalHook)
    asked = 0 if normalizes else plan.training.noise_every
    every = asked if is_exact else 0
    if plan.growth is not None and every == 0:
        conflict = "batch normalization" if normalizes else f"--sync {mode.settings.mode}"
        raise PacelineError(
            f"paceline.grow was given with {conflict}, where no noise of gradients is measured",
            fix="give the batch by sample, such as batch={0: 128, 1_000_000: 512}",
        )
    changes = None
    if asked != 0 and isinstance(mode, LocalStepsHook) and measures_changes(mode, plan.training):
        changes = ChangeNoise(layout, groups, mode, model, optimizer, asked or USUAL_STEPS)
    return GradientNoise(layout, groups, every, plan, optimizer, changes)


class GradientNoise:
    """Measures every few steps how much the gradients of a batch's parts differ.

    A part is what has a backward of its own: a worker's local batch, or a micro-batch. Each worker
    adds one number, and reads the sum some steps later, so that nothing waits for it. Optimizers
    that divide by the size of past gradients have another one, with the coordinates weighted alike,
    where every worker has all gradients and all of the optimizer's state.
    """

    def __init__(
        self,
        layout: Layout,
        groups: Groups,
        every: int | None,
        plan: BatchPlan,
        optimizer: torch.optim.Optimizer,
        changes: ChangeNoise | None = None,
    ) -> None:
        self._layout, self._groups = layout, groups
        self.changes = changes
        """Measures changes of weights instead, between the rounds of local steps."""
        self._write_once = plan.write_once
        self._plan, self._growth = plan, plan.growth
        # A batch that grows must not depend on the time that anything takes.
        adapts, decides = self._growth is None, lambda: groups.placement.rank == 0
        self.interval = NoiseInterval(every, of=plan.steps, adapts=adapts, decides=decides)
        self._optimizer, self._divides = optimizer, family_of(optimizer) == "square root"
        self._weights: AdamWeights | None = None
        """Those of the step in progress, if it is measured with weights."""
        if self._growth is not None:
            self._growth.unread = self._unread
        self._open: tuple[int, DelayedReading, Any] | None = None
        """The step in progress, if it is measured: its number, the sum over the workers of what
        `learned` says, and the weight of the global batch."""
        self._on_their_way: deque[tuple[int, DelayedReading, DelayedReading]] = deque()
        """Measured steps: number, sum, and the whole gradient's squared norm and weight, with the
        weighted squared norm where it is measured."""
        self._unwritten: list[tuple[float | None, ...]] = []
        self._gathers = 0

    def begin(self, layout: Layout) -> None:
        """Begin with the workers of a generation; a sum of earlier ones may never end."""
        self._layout, self._open = layout, None
        self._on_their_way.clear()
        self.interval.begin()
        if self._growth is not None:
            self._growth.agreed = 0  # perhaps not by all: some may not have read the sum
            for step, summed, whole in self._growth.resumed():
                readings = [DelayedReading(torch.tensor(each)) for each in (summed, whole)]
                self._on_their_way.append((step, readings[0], readings[1]))
        self._write()

    def norms(self, parallel_model: ParallelModel, step: int, parts: int) -> PartNorms | None:
        """Return what sees the gradients of this step's parts; None if it is not measured.

        `parts`: those of all workers, which decide alike.
        """
        self._open = self._weights = None
        self._take_changes(all_of_them=False)
        if not self.interval.is_due(step):
            return None
        with self.interval.timed():
            return self._new_norms(parallel_model, parts)

    def _new_norms(self, parallel_model: ParallelModel, parts: int) -> PartNorms | None:
        # To decide alike, all workers read at the same step: what was summed several steps before.
        while self._on_their_way and (
            self._growth
            or self.interval.must_read
            or all(each.is_there for each in self._on_their_way[0][1:])
        ):
            self._read()
        norms = parallel_model.part_norms() if parts > 1 else None
        if norms is None and self._growth is not None:
            self._growth.cannot_measure(parts)
        if self._is_weighted and isinstance(norms, NormsByBackward):
            self._weights = AdamWeights.before_step(self._optimizer, self._groups.device)
            norms.weighted_square = self._weights.square if self._weights else None
        self._gathers = gather_calls()
        return norms

    def learned(
        self,
        step: int,
        norms: PartNorms,
        weights: Sequence[Any],
        whole: Any,
        scale: Any,
        slots: tuple[Sequence[int], int] | None = None,
    ) -> None:
        """Begin to add up the norms of all workers' parts.

        `weights` and `whole`: weights of this worker's parts, and of the global batch. `scale`:
        what a gradient of the mean over a part was multiplied by, but for its share. `slots`:
        numbers of this worker's parts and of all, to add up in an order that does not depend on the
        workers.
        """
        with self.interval.timed():
            self._learned(step, norms, weights, whole, scale, slots)
        self.interval.spent(norms.seconds)
        norms.seconds = 0.0

    def _learned(
        self,
        step: int,
        norms: PartNorms,
        weights: Sequence[Any],
        whole: Any,
        scale: Any,
        slots: tuple[Sequence[int], int] | None,
    ) -> None:
        device = self._groups.device
        squares = norms.squares()
        if slots is None and len(squares) == 1 and len(weights) > 1:
            weights = [sum(weights[1:], weights[0])]
        # Without gradients to see, or with parts that depend on each other, there is no answer; but
        # all workers take part in the sum.
        numbers, all_parts = ([0] * len(squares), 1) if slots is None else slots
        dependent = gather_calls() != self._gathers
        shares = [_on(device, each / whole * scale) for each in weights]

        def by_part(squares: Sequence[torch.Tensor]) -> list[Any]:
            if dependent or len(squares) != len(shares):
                return [_on(device, math.nan)] * all_parts
            means = [_on(device, 0.0)] * all_parts
            for number, square, share in zip(numbers, squares, shares, strict=True):
                means[number] = means[number] + _divided(_on(device, square), share * scale)
            return means

        means = by_part(squares)
        if self._is_weighted:
            assert isinstance(norms, NormsByBackward)
            means += by_part(norms.weighted_squares())
        count = sum((share > 0 for share in shares), _on(device, 0.0))
        # All slices and stages of a replica have the same parts.
        count = count * (self._layout.data_workers / self._layout.workers)
        proposal = self._growth.proposal() if self._growth else self.interval.proposal(step)
        values = _stacked(device, [*means, count, _on(device, proposal)])
        summed = DelayedReading(values, self._groups.sum_later(values))
        self._open = step, summed, _on(device, whole)

    def synchronized(
        self, parallel_model: ParallelModel, squared_norm: torch.Tensor | None
    ) -> None:
        """Take the gradient of the global batch, neither scaled nor clipped, with its squared norm
        if that is known."""
        if self._open is None:
            return
        (step, summed, weight), self._open = self._open, None
        with self.interval.timed():
            device = self._groups.device
            square = parallel_model.squared_norm() if squared_norm is None else squared_norm
            weighted = [self._weighted_square(parallel_model)] if self._is_weighted else []
            values = [_on(device, each) for each in (square, weight, *weighted)]
            self._on_their_way.append((step, summed, DelayedReading(_stacked(device, values))))

    @property
    def _is_weighted(self) -> bool:
        return self._divides and self._layout.workers == self._layout.replicas

    def _weighted_square(self, parallel_model: ParallelModel) -> torch.Tensor:
        if self._weights is None:
            return torch.full((), math.nan, device=self._groups.device)
        squares = [
            self._weights.square(each, each.grad)
            for each in parallel_model.model.parameters()
            if each.grad is not None
        ]
        return torch.stack(squares).sum()

    def finish(self) -> None:
        """Write all that was measured; the workers of the last step are still there."""
        while self._on_their_way:
            self._read()
        self._take_changes(all_of_them=True)
        self._write()

    def _take_changes(self, *, all_of_them: bool) -> None:
        if self.changes is not None:
            rows = self.changes.rows(all_of_them=all_of_them)
            self._unwritten += [(*row, None, None) for row in rows]
            if len(self._unwritten) >= MOST_UNWRITTEN:
                self._write()

    def _read(self) -> None:
        step, summed, whole = self._on_their_way.popleft()
        means = summed.values().tolist()
        squared_norm, weight, *weighted_norm = whole.values().tolist()
        proposed, parts = means.pop(), means.pop()
        own = len(means) // 2 if weighted_norm else len(means)
        row = None
        mean_square, count = sum(means[:own]), round(parts)
        if math.isfinite(mean_square + squared_norm) and count > 1:
            row = (weight, *variance_and_signal(mean_square, squared_norm, count, weight))
            weighted: tuple[float | None, float | None] = None, None
            mean_square = sum(means[own:])
            if weighted_norm and math.isfinite(mean_square + weighted_norm[0]):
                weighted = variance_and_signal(mean_square, weighted_norm[0], count, weight)
            self._unwritten.append((step + 1, *row, *weighted))
        if self._growth is None:
            self.interval.take(proposed)
        else:
            self._growth.take(row, proposed, self._plan.stages.batch(step))
        if len(self._unwritten) >= MOST_UNWRITTEN:
            self._write()

    def _unread(self) -> list[Unread]:
        return [
            (step, summed.values().tolist(), whole.values().tolist())
            for step, summed, whole in self._on_their_way
        ]

    def _write(self) -> None:
        if self._unwritten:
            columns = map(list, zip(*self._unwritten, strict=True))
            named = dict(zip(COLUMNS, columns, strict=True))
            self._write_once(Noise, **named, of_changes=self.changes is not None)
            self._unwritten = []


def _on(device: torch.device, number: float | torch.Tensor) -> Any:
    """Return a number of the host on a CPU, where operators of tensors take longer than all else,
    and elsewhere a tensor of the device, without a copy from the host, which might wait."""
    if device.type == "cpu":
        return float(number)
    return (
        number.float()
        if isinstance(number, torch.Tensor)
        else torch.full((), number, device=device)
    )


def _divided(square: Any, by: Any) -> Any:
    """Return a quotient, or 0 for a part without weight."""
    if isinstance(by, torch.Tensor):
        return torch.where(by > 0, square / by, 0.0)
    return square / by if by > 0 else 0.0


def _stacked(device: torch.device, numbers: list[Any]) -> torch.Tensor:
    if device.type == "cpu":
        return torch.tensor(numbers, dtype=torch.float32)
    return torch.stack(numbers)
