"""The optimizer step as the unit: forward, backward, synchronise, clip, update, schedule."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from paceline.data.batches import Batches
from paceline.data.loader import Batch, load
from paceline.data.order import fingerprint
from paceline.specs import Layout, Outcome, PacelineError, Sync
from paceline.train.agreeing import agreeing
from paceline.train.draws import draw_anew
from paceline.train.evaluate import Evaluation, evaluate
from paceline.train.export import export
from paceline.train.groups import Groups
from paceline.train.layouts.arrange import arrange
from paceline.train.layouts.arranged import Arranged
from paceline.train.layouts.norm import clip
from paceline.train.place import age_seconds, speeds_of_data_workers
from paceline.train.recovery import Recovery
from paceline.train.scaling import LossScaling
from paceline.train.state import TrainedState
from paceline.train.telemetry import Progress, Telemetry
from paceline.train.training import Measure, Training
from paceline.train.weights import Weights


@dataclass(frozen=True)
class StepOutput:
    """What a step gave on this worker."""

    step: int
    """Steps count from 1."""
    loss: torch.Tensor
    """This worker's mean over its share, without gradient; reading it waits for the device. Not a
    number on workers before the last stage of a pipeline."""


class Trainer:
    """Trains one worker's part of the model; iterate over it for batches, and `step` each."""

    def __init__(
        self,
        training: Training,
        layout: Layout,
        groups: Groups,
        telemetry: Telemetry,
        recovery: Recovery | None = None,
        sync: Sync = Sync(),  # noqa: B008 -- frozen
    ) -> None:
        place = groups.place
        sync.check(layout)
        self.training = training
        self.steps = training.total_steps
        """Steps that this training takes."""
        self._layout = layout
        self._groups = groups
        self._clock = telemetry.clock
        self._telemetry = telemetry
        order = training.sample_order()
        self._batches = Batches(
            order=order,
            batch=training.batch,
            steps=self.steps,
            workers=layout.data_workers,
            rank=layout.data_rank(place.rank),
            speeds=speeds_of_data_workers(place, layout),
            seed=training.seed,
        )
        # Arranged before the optimizer is built: sharding replaces the parameters.
        share = self._batches.largest_share(min(training.batch, order.samples))
        self._arranged: Arranged | None = arrange(
            training, layout, groups, largest_share=share, sync=sync, clock=telemetry.clock
        )
        self.model: nn.Module = self._arranged.model
        """The user's own module, with what this worker holds of the weights being trained."""
        self.optimizer = training.optimizer(self._arranged.parameters())
        self.schedule = training.schedule(self.optimizer) if training.schedule else None
        self._mode = agreeing(
            sync, layout, groups, self._arranged, self.optimizer, telemetry.agreed
        )
        self._scaling = LossScaling(layout, groups, replicas_differ=sync.replicas_differ)
        self._recovery = recovery
        self._metrics: dict[str, float] = {}
        self._done = 0
        self._begun = False
        if recovery is not None:
            self._resume(recovery)

    @property
    def progress(self) -> Progress:
        """Steps, samples and the loss over all workers, as of the last report."""
        return self._telemetry.progress

    def __iter__(self) -> Iterator[Batch]:
        """This worker's share of each global batch, until the end or until asked to stop."""
        batches = load(
            self.training.data,
            self._batches,
            self._groups.device,
            split=self.training.split,
            processes=self.training.loaders,
        )
        while not self.progress.stopped:
            with self._clock.during("data"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def step(self, batch: Batch) -> StepOutput:
        """Take one optimizer step on a batch."""
        arranged = self._still_arranged()
        if not self._begun:
            self._begin()
        self._clock.turn("forward")
        # Slices of a layer must draw the same.
        whose = self._groups.place.rank // self._layout.tensor
        draw_anew(self._groups.device, self.training.seed, self._done, whose)
        with self._clock.apart(self._waited):
            self._mode.before_forward(self._done + 1)
        loss, weight = self._forward_and_backward(arranged, batch)
        self._clock.turn("update")
        with self._clock.apart(self._waited):
            self._update(arranged)
        self._clock.turn("other")
        self._done += 1
        self._telemetry.stepped(loss, weight, batch.global_samples)
        if self._recovery is not None:
            epoch = (self._done - 1) // self._batches.steps_per_epoch
            self._recovery.stepped(self._done, epoch, batch.ids)
            if self._recovery.is_due(self._done, self.progress):
                self.save()
        return StepOutput(self._done, loss)

    def save(self) -> None:
        """Begin to save a checkpoint; training goes on while it is written.

        All workers call it together. In a run this happens by itself, as the plan says; under
        `python train.py` there is no folder to save to.
        """
        if self._recovery is not None:
            self._telemetry.report_all()
            with self._clock.during("save"):
                self._mode.drain()
                self._recovery.save(self._state(), self.progress, self._data_facts, self._metrics)

    def evaluate(
        self, data: "Dataset[Any]", metrics: Mapping[str, Measure] | None = None
    ) -> Evaluation:
        """The mean loss, and metrics `name -> function(output, target)`, over a whole dataset.

        All workers call it together; each sample counts once. Events and checkpoints carry it.
        """
        arranged = self._still_arranged()
        with self._mode.agreed():
            found = evaluate(
                arranged, self.training, data, metrics or {}, self._layout, self._groups
            )
        self._metrics = {"loss": found.loss, **found.metrics}
        self._telemetry.evaluated(self._done, found.samples, found.loss, found.metrics)
        return found

    def export(self, path: str | Path) -> None:
        """Write the weights to one safetensors file and the settings to a JSON file beside it.

        All workers call it together; worker 0 writes. Plain PyTorch loads the file:
        `model.load_state_dict(safetensors.torch.load_file(path))`.
        """
        arranged = self._still_arranged()
        settings = {
            "steps": self._done,
            "batch": self.training.batch,
            "seed": self.training.seed,
            "layout": self._layout.model_dump(),
        }
        with self._mode.agreed(), arranged.evaluating():
            export(arranged.weights(), Path(path), settings, writes=self._groups.place.rank == 0)

    def conclude(self) -> Outcome:
        """Save the last state, wait until it is on disk, and say how the training ended.

        All workers call this together.
        """
        self._telemetry.report_all()
        stopped = self.progress.stopped and self._done < self.steps
        if not stopped:
            self._mode.conclude()
        requeued = False
        if self._recovery is not None:
            if self._recovery.saves:
                self.save()
            requeued = self._recovery.conclude(ask_to_requeue=stopped and self.progress.requeue)
        return "interrupted" if requeued else "stopped" if stopped else "finished"

    def close(self) -> None:
        """Let go of what uses the process groups, before they are given up.

        Were it the last to hold a group, the group would be taken apart while Python's lock is
        held, and wait for its own threads, which may be waiting for that lock.
        """
        if self._arranged is not None:
            self._mode.close()
            self._mode.bound.lane.close()
            self._arranged.close()
        self._arranged = None

    def _waited(self) -> float:
        """The seconds that this worker has waited for exchanges which go on beside training."""
        return self._mode.bound.lane.waited_seconds

    def _still_arranged(self) -> Arranged:
        if self._arranged is None:
            raise PacelineError(
                "the trainer was used after the end of `with paceline.start(…)`",
                fix="take all steps inside the block",
            )
        return self._arranged

    def _state(self) -> TrainedState:
        return TrainedState(
            self._still_arranged(), self.optimizer, self.schedule, self._scaling, self._mode
        )

    @cached_property
    def _data_facts(self) -> dict[str, int]:
        """What the order of the samples depends on; an order of many shards takes long to ask."""
        return {
            "samples": self._batches.order.samples,
            "batch": self.training.batch,
            "seed": self.training.seed,
            "order": fingerprint(self._batches.order),
        }

    def _resume(self, recovery: Recovery) -> None:
        manifest = recovery.restore(self._state(), self._data_facts)
        if manifest is not None:
            self._done, self._metrics = manifest.step, manifest.metrics
            self._telemetry.resumed(manifest.step, manifest.samples, manifest.seconds)
            self._batches = replace(self._batches, first_step=self._done)
        position = self._layout.position(self._groups.place.rank)
        if position.stage == position.slice == 0:
            recovery.open_ledger(
                part=self._batches.rank,
                parts=self._batches.workers,
                resumed=self._done,
                samples=self._batches.order.samples,
            )

    def _begin(self) -> None:
        self._begun = True
        self._telemetry.started(
            parameters=self._still_arranged().size,
            batch=self.training.batch,
            steps=self.steps,
            startup_seconds=age_seconds(),
        )

    def _forward_and_backward(
        self, arranged: Arranged, batch: Batch
    ) -> tuple[torch.Tensor, float | torch.Tensor]:
        """Gradients of the mean over the global batch; this share's mean loss and its weight."""
        parts = arranged.parts(batch, self._batches.largest_share(batch.global_samples))
        weights = Weights(
            parts,
            self.training.weight,
            self._layout,
            self._groups,
            replicas_differ=self._mode.bound.sync.replicas_differ,
        )

        def minimise(loss: torch.Tensor, number: int) -> torch.Tensor:
            # Gradients are averaged over data workers, so that a loss scaled by its share of the
            # weight x workers gives the mean over the batch, however unequal the shares are. So it
            # does where weights are averaged instead, and a plain step is proportional to these.
            share = weights.each[number] * self._layout.data_workers / weights.total()
            return self._scaling.scaled(loss * share)

        losses = arranged.learn(parts, minimise, self._mode.last_backward)
        return weights.mean(losses), weights.mine if losses else 0.0

    def _update(self, arranged: Arranged) -> None:
        step = self._done + 1
        self._mode.after_backward(step)
        self._scaling.unscale(self.optimizer)
        if self.training.clip is not None:
            clip(arranged, self.training.clip)
        if self._mode.before_step(step):
            self._scaling.step(self.optimizer)
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()
        self._mode.after_step(step)
