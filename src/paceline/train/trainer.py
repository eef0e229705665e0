"""The trainer: optimizer steps, evaluation, export and regrouping on one worker."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from paceline.cluster.process import age_seconds
from paceline.comm.group_errors import CommunicationError, drop_frames
from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.data.loader import Batch
from paceline.specs import Faults, Layout, Outcome, PacelineError, SyncSettings, default_sync
from paceline.train.after_step import AfterStep
from paceline.train.elastic.agent import ElasticAgent
from paceline.train.elastic.checkpointing import Checkpointing
from paceline.train.elastic.regroup import Regroup
from paceline.train.export.export import LARGEST_FILE_BYTES, Export, Format, export
from paceline.train.gradients.evaluation import Evaluation
from paceline.train.gradients.made_batch import check_iterable, check_origin
from paceline.train.monitor.step_windows import Progress
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.state.kept_objects import KeptObjects
from paceline.train.state.updates import Update
from paceline.train.step_output import StepOutput
from paceline.train.stepper import Stepper
from paceline.train.worker_view import WorkerView
from paceline.user.mistakes import users_code
from paceline.user.training import Training
from paceline.user.validation import Metric

_Result = TypeVar("_Result")
_CHECK = "check that the model accepts the dataset's inputs, and the loss its output and target"


class Trainer(WorkerView):
    """One worker's part of a training: iterate over it for batches, and call `step` on each.

    When workers are lost, it regroups with the survivors and repeats the interrupted step,
    transparently to the caller.
    """

    def __init__(
        self,
        training: Training,
        layout: Layout,
        groups: Groups,
        telemetry: Telemetry,
        checkpointing: Checkpointing | None = None,
        sync: SyncSettings | None = None,
        faults: Faults = Faults(),  # noqa: B008 -- frozen
        agent: ElasticAgent | None = None,
        *,
        own_loop: bool = True,
    ) -> None:
        sync = (sync or default_sync()).for_replicas(layout.replicas)
        self.training = training
        self._groups = groups
        self._clock = telemetry.clock
        self._telemetry = telemetry
        self._checkpointing = checkpointing
        """None without a run folder."""
        self._done = 0
        self._begun = self._stepped = self._closed = False
        self._loss = torch.tensor(torch.nan)
        """Loss of the last step."""
        self._kept = KeptObjects()
        self._after_step = AfterStep(
            *(training, groups, telemetry, checkpointing, self._kept, self._exported),
            own_loop=own_loop,
        )
        telemetry.validator = self._after_step.validator
        self._handed: Batches | None = None
        """The division into batches that the last yielded batch belongs to."""

        def build(layout: Layout) -> Stepper:
            may_retire = agent.may_retire if agent else lambda: False
            described = checkpointing.described(training) if checkpointing else training
            return Stepper(
                described, layout, groups, telemetry, sync, faults, may_retire, self._kept
            )

        self._regroup = Regroup(layout, groups, agent, telemetry, checkpointing, build)
        begin = self._regroup.joined if groups.placement.joins else self._regroup.begun
        self._stepper, self._done = begin()
        self._unsettled = self._after_step.is_due(self._stepper, self._done)
        """Whether validation and checkpoint of the last step are still to be done."""

    @property
    def model(self) -> nn.Module:
        """The user's module, with this worker's part of the weights."""
        return self._stepper.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of a training without phases."""
        return self._only_update.optimizer

    @property
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimizer of each phase, by its name."""
        return {each.phase: each.optimizer for each in self._stepper.updates if each.phase}

    @property
    def schedule(self) -> LRScheduler | None:
        """The learning-rate schedule, if the training has one."""
        return self._only_update.schedule

    @property
    def epoch(self) -> int:
        """Number of complete passes over the data: the epoch of the next step, from 0."""
        return self._stepper.batches.epoch(self._done)

    @property
    def stopped_early(self) -> str | None:
        """Why the training's validation ends it before its last step; None if it does not."""
        return self._after_step.stops_early

    @property
    def progress(self) -> Progress:
        """Steps, samples and the loss over all workers, as of the last report."""
        return self._telemetry.progress

    @property
    def steps_left(self) -> int:
        """Number of steps to take; 0 at the end, or when all workers are asked to stop."""
        ended = self.progress.stopped or self._after_step.stops_early
        return 0 if ended else max(0, self.steps - self._done)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the local batch of each step, until the end or until asked to stop."""
        check_iterable(self.training)
        batches: Iterator[Batch] | None = None
        while not (self.progress.stopped or self._after_step.stops_early):
            self._save_if_due()
            with self._clock.during("data"):
                if batches is None or self._handed is not self._stepper.batches:
                    self._handed = self._stepper.batches
                    batches = self._stepper.loaded(self._done, self.training.loaders)
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def step(self, batch: Any) -> StepOutput:
        """Take one optimizer step on a batch; with `data=None`, on the samples that this worker
        has made: the loss is the mean over those of all workers."""
        self._check_open()
        check_origin(batch, self.training)
        if not self._begun:
            self._begin()
        self._save_if_due()
        with nullcontext() if self._stepped else users_code("the first step", _CHECK):
            self._reach(self._done + 1, batch)
        self._stepped = True
        return StepOutput(self._done, self._loss, self._stepper.phase_losses)

    def save(self) -> None:
        """Start to save a checkpoint; training continues while it is written.

        All workers call it together. A run also saves automatically, as planned. Under
        `python train.py` there is no run folder, and this does nothing.
        """
        checkpointing = self._checkpointing
        if checkpointing is not None:
            self._persist(lambda: checkpointing.save(self._stepper))

    def evaluate(
        self, data: "Dataset[Any]", metrics: Mapping[str, Metric] | None = None
    ) -> Evaluation:
        """Return the mean loss, and metrics as those of `Validation`, over a dataset.

        All workers call it together; each sample counts once. Events and checkpoints record it.
        """
        self._check_open()
        measures = metrics or {}
        found = self._persist(lambda: self._after_step.evaluated(self._stepper, data, measures))
        self._after_step.record(self._done, found)
        return found

    def export(
        self,
        path: str | Path,
        format: Format = "safetensors",
        *,
        file_bytes: int = LARGEST_FILE_BYTES,
    ) -> None:
        """Write the weights, and the settings as JSON: a safetensors file, or a folder that
        Hugging Face's `from_pretrained` or torch's DCP loads.

        All workers call it together; worker 0 writes. Weights of more than `file_bytes` become
        several files. Plain PyTorch: `model.load_state_dict(safetensors.torch.load_file(path))`.
        """
        self._check_open()
        self._persist(lambda: self._exported(Export(Path(path), format, file_bytes)))

    def conclude(self) -> Outcome:
        """Save the last state, wait until it is on disk, and return how the training ended.

        All workers call this together.
        """
        return self._persist(self._conclude)

    def close(self) -> None:
        """Release the process groups before they are destroyed."""
        if not self._closed:
            self._closed = True
            self._regroup.close()
            self._stepper.close()

    def _exported(self, to: Export) -> None:
        stepper = self._stepper
        settings = {
            "steps": self._done,
            "batch": stepper.batch_plan.batch,
            "seed": self.training.seed,
            "layout": stepper.layout.model_dump(),
            "average": self.training.average,
        }
        with stepper.shared_weights(), stepper.parallel_model.evaluating():
            weights = stepper.parallel_model.weights()
            self._groups.health.check_arrived(self._groups.device)
            export(weights, to, stepper.model, settings, writes=self.is_main)

    def _reach(self, step: int, batch: Any) -> None:
        """Take steps up to `step`, the first on `batch` unless the batches were redivided."""
        made = self.training.data is None
        while self._done < step or self._unsettled:
            try:
                stale = batch is None or self._handed is not self._stepper.batches
                if stale and not (made or self._unsettled):
                    batch = next(self._stepper.loaded(self._done))
                with self._groups.health.communicating():
                    if not self._unsettled:
                        self._take_step(self._stepper.made(batch) if made else batch)
                    self._after_step.run(self._stepper, self._done)
                self._unsettled = False
            except CommunicationError as error:
                self._recover(error)
            # Batches that were made for earlier steps are gone: this one becomes the next step.
            step, batch = (min(step, self._done + 1), batch) if made else (step, None)
        if self._regroup.asked:
            self._recover(None)
            if not made:
                self._reach(step, None)

    def _take_step(self, batch: Batch) -> None:
        stepper, step = self._stepper, self._done + 1
        if self._checkpointing is not None:
            self._checkpointing.before_step(stepper, step, batch)
        learned = stepper.step(batch, step)
        self._loss = learned.loss
        self._done = step
        self._regroup.got_on()
        stepper.monitor.stepped(step, learned, batch)
        self._unsettled = True

    def _persist(self, work: Callable[[], _Result]) -> _Result:
        """Run collective `work`; if a worker is lost meanwhile, regroup and repeat it."""
        reached = self._done
        while True:
            try:
                with self._groups.health.communicating():
                    return work()
            except CommunicationError as error:
                self._recover(error)
                if self.training.data is not None:
                    self._reach(reached, None)

    def _recover(self, error: CommunicationError | None) -> None:
        """Regroup, and continue from the newest state of the survivors."""
        if error is not None:
            if not self._regroup.possible or self._regroup.is_stuck:
                raise error
            drop_frames(error)
        why = None if error is None else str(error)
        self._stepper, self._done = self._regroup.recovered(self._stepper, self._done, why)
        self._unsettled = self._after_step.is_due(self._stepper, self._done)

    def _save_if_due(self) -> None:
        if self._after_step.unsaved:
            self._persist(lambda: self._after_step.save(self._stepper, self._done))

    def _conclude(self) -> Outcome:
        self._telemetry.report_all()
        self._telemetry.logged.report_last(self.progress.steps)
        stopped = self._done < self.steps and not self._after_step.stops_early
        if stopped and self._handed and not (self._begun or self.progress.stopped):
            raise PacelineError(
                "the training loop took no step",
                fix="call trainer.step(batch) in `for batch in trainer:`",
            )
        if not stopped:
            self._stepper.mode.conclude()
        if self._checkpointing is not None:
            return self._checkpointing.conclude(self._stepper, stopped=stopped)
        return "stopped" if stopped else "finished"

    @property
    def _only_update(self) -> Update:
        if self.training.phases is not None:
            names = ", ".join(self.training.phases)
            raise PacelineError(
                f"a training with phases has several optimizers: {names}",
                fix="use trainer.optimizers[name]",
            )
        return self._stepper.updates[0]

    def _check_open(self) -> None:
        if self._closed:
            raise PacelineError(
                "the trainer was used after the end of `with paceline.start(…)`",
                fix="take all steps inside the block",
            )

    def _begin(self) -> None:
        self._begun = True
        self._telemetry.started(
            parameters=self._stepper.parallel_model.size,
            batch=self.training.first_batch,
            steps=self.steps,
            startup_seconds=age_seconds(),
        )
