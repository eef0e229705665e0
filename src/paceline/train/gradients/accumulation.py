"""Gradients of the mean loss over a global batch, from one worker's local batch."""

import hashlib
import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.data.loader import Batch
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.step.loss_scaling import LossScaling
from paceline.parallel.step.loss_weights import Weights
from paceline.parallel.step.model_calls import refuse_constant
from paceline.parallel.step.whole_batch import WholeBatch, gathering
from paceline.specs import Layout
from paceline.sync.hook import Hook
from paceline.train.gradients.gradient_noise import GradientNoise
from paceline.user.training import Training


@dataclass(frozen=True)
class BatchLoss:
    """The loss of a local batch."""

    loss: torch.Tensor
    """Mean loss over the local batch."""
    losses: torch.Tensor
    """Equal to `loss`; or, with a fixed number of parts, the mean loss of each part of the global
    batch, with zeros for the parts of other workers."""
    weights: float | torch.Tensor
    """Weights of `losses` in the mean over the global batch."""


def nothing_learned(device: torch.device) -> BatchLoss:
    """Return the loss of an update that only other workers have computed: it has no weight."""
    return BatchLoss(torch.full((), math.nan, device=device), torch.zeros((), device=device), 0.0)


@dataclass(frozen=True)
class GradientComputation:
    """Gradients of a whole local batch, accumulated over micro-batches."""

    training: Training
    layout: Layout
    groups: Groups
    mode: Hook
    scaling: LossScaling
    noise: GradientNoise
    batches: Batches
    phase: str = ""
    """The phase whose gradients these are; each draws its own random numbers."""

    def seed_step(self, step: int, stream: int | str) -> None:
        """Seed the random numbers of a step, so that a resumed run draws the same ones."""
        text = f"{self.training.seed}/{step}/{stream}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        # torch.manual_seed would seed every kind of device and take a hundred times as long.
        torch.default_generator.manual_seed(number)
        if self._device_module is not None:
            self._device_module.manual_seed(number)

    @cached_property
    def _device_module(self) -> Any:
        device = self.groups.device
        return None if device.type == "cpu" else torch.get_device_module(device.type)

    @cached_property
    def _stream(self) -> int | str:
        """The stream of random numbers: tensor-parallel slices of a layer must draw the same."""
        stream = self.groups.placement.rank // self.layout.tensor
        return f"{stream}/{self.phase}" if self.phase else stream

    def learn(self, parallel_model: ParallelModel, batch: Batch, step: int) -> BatchLoss:
        """Compute the gradients of the mean loss over the global batch."""
        self.seed_step(step, self._stream)
        parts = parallel_model.parts(batch, self.batches.largest_local_batch(batch.global_samples))
        weights = Weights(
            parts,
            self.training.weight,
            self.layout,
            self.groups,
            replicas_differ=self.mode.settings.replicas_differ,
        )

        def minimize(loss: torch.Tensor, number: int) -> torch.Tensor:
            refuse_constant(loss)
            # Gradients are averaged over data-parallel ranks, so a loss scaled by its fraction of
            # the weight x ranks gives the mean over the global batch, even if local batches differ.
            # This also holds if weights are averaged: a plain SGD step is linear in the gradient.
            share = weights.each[number] * self.layout.data_workers / weights.total()
            whole = isinstance(share, float) and share == 1.0  # most often; a tensor stays unread
            return self.scaling.scaled(loss if whole else loss * share)

        norms = self.noise.norms(parallel_model, step, len(parts) * self.layout.data_workers)
        with (
            gathering(self._whole_batch(batch, len(parts), parallel_model.data_group)),
            norms or nullcontext(),
        ):
            losses = parallel_model.learn(parts, minimize, self.mode.last_backward)
        if self.noise.changes is not None:
            self.noise.changes.took(step, weights.mine, weights.total())
        if norms:
            scale = self.scaling.factor * self.layout.data_workers
            self.noise.learned(step, norms, weights.each, weights.total(), scale)
        mean = weights.mean(losses)
        return BatchLoss(mean, mean, weights.mine if losses else 0.0)

    def _whole_batch(
        self, batch: Batch, forwards: int, group: "dist.ProcessGroup | None"
    ) -> WholeBatch:
        """Describe the batch to `paceline.gather`."""
        settings = self.mode.settings
        apart = settings.mode if settings.computes_apart(self.layout) else None
        return WholeBatch(batch, self.batches, forwards, group, apart)
