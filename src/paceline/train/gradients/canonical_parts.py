"""Gradients computed part by part, so that no bit depends on which worker computes which part."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch

from paceline.comm.groups import Groups
from paceline.comm.torch_internals import BatchNormLayer
from paceline.data.batches import Batches
from paceline.data.collation.nested import map_tensors
from paceline.data.loader import Batch
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.step.loss_scaling import LossScaling
from paceline.parallel.step.loss_weights import Weigh, weight_of
from paceline.parallel.step.whole_batch import gathering
from paceline.specs import Layout, PacelineError
from paceline.sync.hook import Hook
from paceline.sync.modes.canonical.hook import CanonicalHook
from paceline.train.gradients.accumulation import BatchLoss, GradientComputation
from paceline.train.gradients.gradient_noise import GradientNoise
from paceline.user.training import Training


def gradient_computation(
    training: Training,
    layout: Layout,
    groups: Groups,
    mode: Hook,
    scaling: LossScaling,
    noise: GradientNoise,
    batches: Batches,
    phase: str = "",
) -> GradientComputation:
    """Return this worker's gradient computation for the mode. All workers call this together."""
    if not isinstance(mode, CanonicalHook):
        return GradientComputation(training, layout, groups, mode, scaling, noise, batches, phase)
    _check_size(layout, batches, training.largest_batch)
    mode.divide(batches.own_parts)
    return CanonicalGradients(training, layout, groups, mode, scaling, noise, batches)


def _check_size(layout: Layout, batches: Batches, largest_batch: int) -> None:
    assert batches.parts is not None
    size = -(-largest_batch // batches.parts)
    if size > (layout.micro_batch or size):
        raise PacelineError(
            f"micro_batch={layout.micro_batch} was given together with canonical:parts="
            f"{batches.parts}, but each part is one forward, of up to {size} samples here",
            fix=f"use parts={-(-largest_batch // (layout.micro_batch or 1))} or more, or leave"
            " micro_batch out",
        )


@dataclass(frozen=True)
class CanonicalGradients(GradientComputation):
    """Gradients computed per part, with its own forward, backward and random numbers."""

    def learn(self, parallel_model: ParallelModel, batch: Batch, step: int) -> BatchLoss:
        """Compute the gradients of the mean loss over the global batch."""
        mode, every = self.mode, self.batches.parts
        assert isinstance(mode, CanonicalHook)
        assert every is not None
        mine = self._parts(batch)
        weights = _Weights(mine, every, self.training.weight, self.groups)
        losses = torch.zeros(every, device=self.groups.device)
        mode.begin(min(every, batch.global_samples), RunningStatistics(parallel_model.model))
        norms = self.noise.norms(parallel_model, step, min(every, batch.global_samples))
        with norms or nullcontext():
            for number, part in mine.items():

                def minimize(loss: torch.Tensor, only: int, number: int = number) -> torch.Tensor:
                    del only
                    return self.scaling.scaled(loss * weights.fraction(number))

                self.seed_step(step, number)
                whole = self._whole_batch(part, 1, parallel_model.data_group)
                with mode.part(number, last=number == max(mine)), gathering(whole):
                    (losses[number],) = parallel_model.learn([part], minimize)
        if norms:
            each = [weights.each[number] for number in mine]
            whole_weight, slots = weights.whole(batch), (list(mine), every)
            self.noise.learned(step, norms, each, whole_weight, self.scaling.factor, slots)
        mean = (losses * weights.each).sum() / weights.each.sum().clamp(min=1e-9)
        return BatchLoss(mean, losses, weights.each)

    def _parts(self, batch: Batch) -> dict[int, Batch]:
        """Return this worker's non-empty parts, by their number in the global batch."""
        own = self.batches.own_parts
        return {
            number: _apart(part)
            for number, part in zip(own, batch.micro(len(own)), strict=True)
            if part.samples
        }


class _Weights:
    """Weights of a batch's parts, absolute and as fractions of the whole batch."""

    def __init__(
        self, mine: Mapping[int, Batch], every: int, weigh: Weigh | None, groups: Groups
    ) -> None:
        self.each = torch.zeros(every, device=groups.device)
        """Weights of this worker's parts; zeros for the parts of others."""
        for number, part in mine.items():
            self.each[number] = weight_of(part, weigh)
        self._mine, self._all, self._work = mine, None, None
        if weigh is not None:
            # One worker contributes each weight and the others add zeros: exact in any order.
            self._all = self.each.clone()
            self._work = groups.sum_later(self._all)

    def fraction(self, number: int) -> float | torch.Tensor:
        """Return a part's fraction of the weight of the whole batch."""
        if self._all is None:
            return self._mine[number].samples / self._mine[number].global_samples
        return self._of_all()[number] / self._of_all().sum()

    def whole(self, batch: Batch) -> int | torch.Tensor:
        """Return the weight of the whole batch."""
        return batch.global_samples if self._all is None else self._of_all().sum()

    def _of_all(self) -> torch.Tensor:
        assert self._all is not None
        if self._work is not None:
            self._work.wait()
            self._work = None
        return self._all


def _apart(part: Batch) -> Batch:
    """Copy a part to its own memory: sums inside a layer may depend on a tensor's alignment."""
    return replace(
        part,
        inputs=map_tensors(part.inputs, torch.clone),
        target=map_tensors(part.target, torch.clone),
    )


class RunningStatistics:
    """Running statistics of batch normalization, and their values when the step began."""

    def __init__(self, model: torch.nn.Module) -> None:
        layers = [layer for layer in model.modules() if isinstance(layer, BatchNormLayer)]
        used = [layer for layer in layers if layer.training and layer.running_mean is not None]
        self._statistics = _there(
            each for layer in used for each in (layer.running_mean, layer.running_var)
        )
        self._counts = _there(layer.num_batches_tracked for layer in used)
        self._before = [each.clone() for each in (*self._statistics, *self._counts)]
        self.size = sum(each.numel() for each in self._statistics)

    def rewind(self) -> None:
        """Undo the changes of the previous part."""
        for now, before in zip((*self._statistics, *self._counts), self._before, strict=True):
            now.copy_(before)

    def change(self) -> torch.Tensor:
        """Return the changes of this part, as a row of 32-bit numbers."""
        both = zip(self._statistics, self._before, strict=False)
        return torch.cat([(now - before).float() for now, before in both])

    def conclude(self, mean_change: torch.Tensor) -> None:
        """Apply the mean change of all parts, which count as one batch."""
        self.rewind()
        sizes = [each.numel() for each in self._statistics]
        for each, change in zip(self._statistics, torch.split(mean_change, sizes), strict=True):
            each.add_(change)
        for count in self._counts:
            count.add_(1)


def _there(buffers: Iterable[torch.Tensor | None]) -> list[torch.Tensor]:
    return [each for each in buffers if each is not None]
