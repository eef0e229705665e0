"""The optimizer step as the unit: forward, backward, synchronise, clip, update, schedule."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paceline.data.batches import Batches
from paceline.data.loader import Batch, load
from paceline.data.order import Sequential, Shuffled
from paceline.specs import PacelineError
from paceline.train.groups import Groups
from paceline.train.telemetry import Progress, Telemetry
from paceline.train.training import Training


@dataclass(frozen=True)
class StepOutput:
    """What a step gave on this worker."""

    step: int
    """Steps count from 1."""
    loss: torch.Tensor
    """This worker's mean over its share, without gradient; reading it waits for the device."""


class Trainer:
    """Trains one worker's replica; iterate over it for batches, and `step` each of them."""

    def __init__(self, training: Training, groups: Groups, telemetry: Telemetry) -> None:
        place = groups.place
        self.training = training
        self.steps = training.total_steps
        """Steps that this training takes."""
        self._groups = groups
        self._telemetry = telemetry
        order = Shuffled if training.shuffle else Sequential
        arguments = {"seed": training.seed} if training.shuffle else {}
        self._batches = Batches(
            order=order(training.samples, **arguments),
            batch=training.batch,
            steps=self.steps,
            workers=place.workers,
            rank=place.rank,
        )
        # The same first weights on any number of workers; then random numbers (dropout) of its own.
        torch.manual_seed(training.seed)
        self.model: nn.Module = training.model().to(groups.device)
        """The user's own module, with the weights being trained."""
        torch.manual_seed(training.seed * 1_000_003 + place.rank)
        self.optimizer = training.optimizer(self.model.parameters())
        self.schedule = training.schedule(self.optimizer) if training.schedule else None
        self._arranged: nn.Module | None = groups.replicate(self.model)
        self._done = 0

    @property
    def progress(self) -> Progress:
        """Steps, samples and the loss over all workers, as of the last report."""
        return self._telemetry.progress

    def __iter__(self) -> Iterator[Batch]:
        """This worker's share of each global batch, until the end or until asked to stop."""
        for batch in load(
            self.training.data,
            self._batches,
            self._groups.device,
            split=self.training.split,
            processes=self.training.loaders,
        ):
            yield batch
            if self.progress.stopped:
                break

    def step(self, batch: Batch) -> StepOutput:
        """Take one optimizer step on a batch."""
        if self._arranged is None:
            raise PacelineError(
                "trainer.step() was called after the end of `with paceline.start(…)`",
                fix="take all steps inside the block",
            )
        if self._done == 0:
            self._begin()
        weight, total = self._weights(batch)
        output = _call(self._arranged, batch.inputs)
        loss = self.training.loss(output, batch.target)
        _check_loss(loss)
        share = weight * self._groups.place.workers / total()
        (loss * share).backward()
        if self.training.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()
        self._done += 1
        loss = loss.detach()
        self._telemetry.stepped(loss, weight, batch.global_samples)
        return StepOutput(self._done, loss)

    def close(self) -> None:
        """Let go of what uses the process groups, before they are given up.

        Were it the last to hold a group, the group would be taken apart while Python's lock is
        held, and wait for its own threads, which may be waiting for that lock.
        """
        self._arranged = None

    def _begin(self) -> None:
        self._telemetry.started(
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            batch=self.training.batch,
            steps=self.steps,
            startup_seconds=_age_seconds(),
        )

    def _weights(self, batch: Batch) -> tuple[Any, Any]:
        """What this share weighs, and a function that gives the weight of the whole batch.

        Gradients are averaged over workers, so a loss scaled by `share of the weight x workers`
        yields the gradient of the mean over the global batch, however unequal the shares are.
        """
        if self.training.weight is None:
            return batch.samples, lambda: batch.global_samples
        mine = self.training.weight(batch.target).to(torch.float32) * (batch.samples > 0)
        total = mine.clone()
        # Begun before forward and awaited after it, so that nobody waits for it in between.
        work = self._groups.sum_later(total)

        def awaited() -> torch.Tensor:
            if work is not None:
                work.wait()
            return total

        return mine, awaited


def _age_seconds() -> float:
    """How long ago this process was started, by the kernel's clock since boot."""
    start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, list | tuple):
        return model(*inputs)
    return model(inputs)


def _check_loss(loss: Any) -> None:
    if isinstance(loss, torch.Tensor) and loss.ndim == 0:
        return
    form = (
        f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
    )
    raise PacelineError(
        f"loss(output, target) returned {form}, not a scalar tensor",
        fix="return the mean over the samples of the batch, such as F.cross_entropy does",
    )
