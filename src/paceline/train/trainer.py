"""The optimizer step as the unit: forward, backward, synchronise, clip, update, schedule."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from paceline.data.batches import Batches
from paceline.data.loader import Batch, load
from paceline.data.order import Sequential, Shuffled
from paceline.specs import Layout, PacelineError
from paceline.train.arrange import Arranged
from paceline.train.calls import call, checked_loss
from paceline.train.evaluate import Evaluation, evaluate
from paceline.train.groups import Groups
from paceline.train.place import speeds_of_workers
from paceline.train.telemetry import Progress, Telemetry
from paceline.train.training import Measure, Training
from paceline.train.weights import Weights


@dataclass(frozen=True)
class StepOutput:
    """What a step gave on this worker."""

    step: int
    """Steps count from 1."""
    loss: torch.Tensor
    """This worker's mean over its share, without gradient; reading it waits for the device."""


class Trainer:
    """Trains one worker's replica; iterate over it for batches, and `step` each of them."""

    def __init__(
        self, training: Training, layout: Layout, groups: Groups, telemetry: Telemetry
    ) -> None:
        place = groups.place
        self.training = training
        self.steps = training.total_steps
        """Steps that this training takes."""
        self._layout = layout
        self._groups = groups
        self._telemetry = telemetry
        samples = training.samples
        self._batches = Batches(
            order=Shuffled(samples, training.seed) if training.shuffle else Sequential(samples),
            batch=training.batch,
            steps=self.steps,
            workers=place.workers,
            rank=place.rank,
            speeds=speeds_of_workers(place, layout.speeds),
        )
        # The same first weights on any number of workers; then random numbers (dropout) of its own.
        torch.manual_seed(training.seed)
        self.model: nn.Module = training.model().to(groups.device)
        """The user's own module, with the weights being trained."""
        torch.manual_seed(training.seed * 1_000_003 + place.rank)
        # Arranged before the optimizer is built: sharding replaces the parameters.
        self._arranged: Arranged | None = Arranged(self.model, layout, groups)
        self.optimizer = training.optimizer(self.model.parameters())
        self.schedule = training.schedule(self.optimizer) if training.schedule else None
        self._scaler = torch.amp.GradScaler(groups.device.type, enabled=layout.precision == "fp16")
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
        arranged = self._still_arranged()
        if self._done == 0:
            self._begin()
        loss, weight = self._forward_and_backward(arranged, batch)
        self._update()
        self._done += 1
        self._telemetry.stepped(loss, weight, batch.global_samples)
        return StepOutput(self._done, loss)

    def evaluate(
        self, data: "Dataset[Any]", metrics: Mapping[str, Measure] | None = None
    ) -> Evaluation:
        """The mean loss, and metrics `name -> function(output, target)`, over a whole dataset.

        All workers call it together; each sample counts once, also in an uneven last batch.
        """
        return evaluate(
            self.model,
            self._still_arranged(),
            self.training,
            data,
            metrics or {},
            self._groups,
        )

    def export(self, path: str | Path) -> None:
        """Write the weights to one safetensors file and the settings to a JSON file beside it.

        All workers call it together; worker 0 writes. Plain PyTorch loads the file:
        `model.load_state_dict(safetensors.torch.load_file(path))`.
        """
        from paceline.train.export import export  # noqa: PLC0415 -- loads torch's checkpointing

        self._still_arranged()
        settings = {
            "steps": self._done,
            "batch": self.training.batch,
            "seed": self.training.seed,
            "layout": self._layout.model_dump(),
        }
        export(self.model, Path(path), settings, writes=self._groups.place.rank == 0)

    def close(self) -> None:
        """Let go of what uses the process groups, before they are given up.

        Were it the last to hold a group, the group would be taken apart while Python's lock is
        held, and wait for its own threads, which may be waiting for that lock.
        """
        self._arranged = None

    def _still_arranged(self) -> Arranged:
        if self._arranged is None:
            raise PacelineError(
                "the trainer was used after the end of `with paceline.start(…)`",
                fix="take all steps inside the block",
            )
        return self._arranged

    def _begin(self) -> None:
        self._telemetry.started(
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            batch=self.training.batch,
            steps=self.steps,
            startup_seconds=_age_seconds(),
        )

    def _forward_and_backward(
        self, arranged: Arranged, batch: Batch
    ) -> tuple[torch.Tensor, float | torch.Tensor]:
        """Gradients of the mean over the global batch; this share's mean loss and its weight."""
        parts = list(batch.micro(self._micro_batches(batch.global_samples)))
        weights = Weights(parts, self.training.weight, self._groups)
        losses = []
        for number, (part, weight) in enumerate(zip(parts, weights.each, strict=True)):
            with arranged.synchronising(last=number == len(parts) - 1):
                with arranged.computing():
                    output = call(arranged, part.inputs)
                    loss = checked_loss(self.training.loss(output, part.target))
                # Gradients are averaged over workers, so that a loss scaled by its share of the
                # weight x workers gives the mean over the batch, however unequal the shares are.
                share = weight * self._groups.place.workers / weights.total()
                self._scaler.scale(loss * share).backward()
            losses.append(loss.detach())
        return weights.mean(losses), weights.mine

    def _micro_batches(self, global_samples: int) -> int:
        """Forwards per step, the same on every worker."""
        if self._layout.micro_batch is None:
            return 1
        return -(-self._batches.largest_share(global_samples) // self._layout.micro_batch)

    def _update(self) -> None:
        if self.training.clip is not None:
            self._scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()


def _age_seconds() -> float:
    """How long ago this process was started, by the kernel's clock since boot."""
    start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")
