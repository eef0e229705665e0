"""The steps of one generation: model, optimizers, synchronization mode, batches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.comm.host_copies import state_copies
from paceline.data.loader import Batch, load
from paceline.data.streams import Cursor, load_stream
from paceline.parallel.fitted_layout import everybody_has_all
from paceline.parallel.gradient_norm import clip
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.parallelize import parallelize
from paceline.parallel.phased_model import PhasedModel
from paceline.parallel.whole_model import WholeModel
from paceline.specs import Faults, Layout, SyncSettings
from paceline.sync.hook import Hook
from paceline.train.gradients.accumulation import BatchLoss, GradientComputation, nothing_learned
from paceline.train.gradients.batch_plan import BatchPlan
from paceline.train.gradients.buffer_settling import BufferSettling
from paceline.train.gradients.buffers import Buffers
from paceline.train.gradients.canonical_parts import gradient_computation
from paceline.train.gradients.gradient_noise import gradient_noise
from paceline.train.gradients.made_batch import made_batch
from paceline.train.gradients.metric_objects import check_metrics
from paceline.train.gradients.same_stream import check_same_stream
from paceline.train.gradients.sync_hook import sync_hook
from paceline.train.monitor.monitor import Monitor
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.state.closure import ClosureUpdates
from paceline.train.state.kept_objects import KeptObjects
from paceline.train.state.pretrained_weights import load_pretrained
from paceline.train.state.queued_updates import QueuedUpdates
from paceline.train.state.training_state import TrainingState
from paceline.train.state.updates import updates_of
from paceline.train.state.weight_average import weight_average
from paceline.user.phase import reported_phase
from paceline.user.pretrained import Pretrained
from paceline.user.training import Training


class Stepper:
    """One worker's model, optimizers and synchronization mode, and the steps that they take."""

    def __init__(
        self,
        training: Training,
        layout: Layout,
        groups: Groups,
        telemetry: Telemetry,
        sync: SyncSettings,
        faults: Faults,
        may_retire: Callable[[], bool] = lambda: False,
        kept: KeptObjects | None = None,
    ) -> None:
        sync.check(layout)
        self.training, self.layout, self.sync = training, layout, sync
        self._groups, self._telemetry = groups, telemetry
        self.cursor = Cursor() if training.stream is not None else None
        """The place in the stream after the last step, if the data is one."""
        self._kept = KeptObjects() if kept is None else kept
        self._clock = telemetry.clock
        self.batch_plan = BatchPlan(training, groups, telemetry.write_once)
        self._kept.keep_with_weights("batch", self.batch_plan)
        self.batches = self.batch_plan.divided(layout, groups.placement, sync, done=0)
        share = self.batches.largest_local_batch(self.batch_plan.largest)
        # Arrange the model before building the optimizer: sharding replaces the parameters.
        self.parallel_model: ParallelModel = parallelize(
            training, layout, groups, largest_local_batch=share, sync=sync, clock=self._clock
        )
        if training.pretrained is not None:
            given, says = Pretrained.of(training.pretrained), groups.placement.rank == 0
            load_pretrained(given, self.parallel_model, says=says)
        self.model = self.parallel_model.model
        self.updates = updates_of(self.batch_plan, self.parallel_model, layout, groups, sync)
        """The updates of a step: one, or one per phase."""
        self.updates_done = 0
        """Updates of the next step that are done: an interrupted step continues after them."""
        self._current = 0
        """Number of the update in progress."""
        self._learned: dict[str, BatchLoss] = {}
        """The loss of each update of `_learned_step` that this worker has taken, by phase."""
        self._learned_step = 0
        self._reported = reported_phase(training.phases) if training.phases else ""
        check_metrics(training.validation, layout)
        self.average = weight_average(training.average, self.parallel_model, sync)
        self.mode = self._sync_hook()
        where = self.batch_plan, layout, groups, self.mode, self.parallel_model
        self._noise = gradient_noise(*where, self.updates[0].optimizer)
        self._gradients: list[GradientComputation] = []
        """One per update; set by `begin_at`, after the batches are divided among the workers."""
        self._buffers = Buffers(self.model)
        self._settling: list[BufferSettling] = []
        """One per update; set by `begin_at`."""
        self._faults, self._may_retire = faults, may_retire
        self.queued = QueuedUpdates(
            *(self.updates, groups, self.cursor, self.average, self._kept),
            regroups=faults.regroup and self.keeps_state,
            has_other_copy=bool(faults.copy_every),
            can_repeat=training.data is not None,
        )
        self.monitor = self._new_monitor()
        self._open = False
        """Whether a step is in progress."""
        self._stream_checked = False
        self._closures = ClosureUpdates(self.parallel_model, groups)

    @property
    def keeps_state(self) -> bool:
        """Whether each worker holds the whole state, so that any of them can continue with it."""
        return everybody_has_all(self.layout, self.sync)

    def rejoin(self, layout: Layout) -> None:
        """Move to the workers of another generation, with the state unchanged."""
        assert isinstance(self.parallel_model, WholeModel)
        self.layout = layout
        self.parallel_model.rejoin(layout)
        self._noise.begin(layout)  # others may never join its sums, which a state would wait for
        self.mode = self._sync_hook()
        self.monitor = self._new_monitor()

    def begin_at(self, step: int, updates_done: int = 0) -> None:
        """Divide the batches after a step among the current workers. All call this together."""
        where = self.layout, self._groups.placement, self.sync
        self.batches = self.batch_plan.divided(*where, done=step)
        self._gradients = self._new_gradients()
        self._settling = [self._new_settling() for _ in self.updates]
        self.updates_done = updates_done
        self._stream_checked = False

    def loaded(self, done: int, processes: int = 0) -> Iterator[Batch]:
        """Load this worker's batches of the steps after step `done`, which is the last."""
        training, form, device = self.training, self.training.form, self._groups.device
        batches = replace(self.batches, first_step=done)
        if training.stream is not None and self.cursor is not None:
            place = self.cursor.place
            return load_stream(training.stream, place, batches, device, form, processes=processes)
        return load(training.data, batches, device, form, processes=processes)

    def made(self, collated: Any) -> Batch:
        """Return a batch that this worker made. All workers call this together."""
        differ = self.mode.settings.replicas_differ
        return made_batch(
            collated, self.training, self.layout, self._groups, replicas_differ=differ
        )

    def step(self, batch: Batch, step: int) -> BatchLoss:
        """Take the updates of a step that are due and not done; return the step's loss."""
        if self.cursor is not None and not self._stream_checked:
            check_same_stream(batch, self._groups)
            self._stream_checked = True
        if step != self._learned_step:
            self._learned, self._learned_step = {}, step
        for number in range(self.updates_done, len(self.updates)):
            update = self.updates[number]
            if step % update.every == 0:
                self._current = number
                if update.closure:
                    learned = self._evaluate_and_update(batch, step)
                else:
                    learned = self.forward_and_backward(batch, step)
                    self.update(step)
                self._learned[update.phase] = learned
            self.updates_done = number + 1
        self.updates_done = 0
        if self.cursor is not None and batch.place is not None:
            self.cursor.place = batch.place
        if self.average is not None:
            self.average.update(unless=self.queued.gate)
        if self.batch_plan.advanced(step):
            self.begin_at(step)
        return self._learned.get(self._reported) or nothing_learned(self._groups.device)

    @property
    def phase_losses(self) -> dict[str, torch.Tensor]:
        """Mean loss over the local batch of each phase that the last step took."""
        return {phase: learned.loss for phase, learned in self._learned.items() if phase}

    def forward_and_backward(self, batch: Batch, step: int) -> BatchLoss:
        """Compute the gradients of the mean loss over the global batch."""
        learned = self.monitor.learned(step, self.parallel_model, self._begin_update(batch, step))
        self._settle_buffers(batch)
        return learned

    def _settle_buffers(self, batch: Batch) -> None:
        if (settling := self._settling[self._current]).needed:
            with self._clock.during("communication"):
                settling.settle(batch)

    def _begin_update(self, batch: Batch, step: int) -> Callable[[], BatchLoss]:
        """Return the function that computes the gradients of the current update."""
        if isinstance(self.parallel_model, PhasedModel):
            self.parallel_model.begin(self.updates[self._current].phase)
        self._clock.turn("forward")
        self._open = True
        if self._buffers or self.updates[self._current].closure or not self.sync.by_engine:
            state_copies.let_end()  # the forward changes more than gradients
        self._buffers.remember()
        lane = self.mode.context.lane
        waited_seconds = lane.waited_seconds
        self.mode.before_forward(step)
        self._clock.waited(lane.waited_seconds - waited_seconds)
        return partial(self._gradients[self._current].learn, self.parallel_model, batch, step - 1)

    def update(self, step: int) -> None:
        """Synchronize and clip gradients, update the weights and the learning rate."""
        self._clock.turn("optimizer")
        update = self.updates[self._current]
        lane = self.mode.context.lane
        waited_seconds = lane.waited_seconds
        self.mode.after_backward(step)
        update.scaling.unscale(update.optimizer)
        self._noise.synchronized(self.parallel_model, self.monitor.squared_norm)
        if update.clip is not None:
            clip(self.parallel_model, update.clip, self.monitor.squared_norm)
        state_copies.let_end()
        self.queued.begin(update, (step - 1) * len(self.updates) + self._current)
        if self.queued.gate is not None:
            self._buffers.restore_where(self.queued.gate)
        if self.mode.before_step(step):
            update.scaling.step(update.optimizer, self.queued.skip(self.monitor.skip))
        update.optimizer.zero_grad()
        if update.schedule is not None:
            update.schedule.step()
        self.mode.after_step(step)
        self.queued.end()
        self._clock.waited(lane.waited_seconds - waited_seconds)
        self._open = False
        self._clock.turn("other")

    def _evaluate_and_update(self, batch: Batch, step: int) -> BatchLoss:
        """Let an optimizer evaluate the loss as often as it needs, and update the weights."""
        learn = self._begin_update(batch, step)
        undoable = self._faults.regroup and self.layout.workers > 1 and self.keeps_state
        learned = self._closures.take(self.updates[self._current], learn, undoable=undoable)
        self._settle_buffers(batch)
        self._open = False
        self._clock.turn("other")
        return learned

    def discard_step(self) -> None:
        """Discard the gradients and buffers of an update that was interrupted."""
        if not self._open:
            return
        self._open = False
        for parameter in self.parallel_model.parameters():
            parameter.grad = None
        self._buffers.restore()
        self._closures.undo()

    def state(self) -> TrainingState:
        """Return the state that the training needs to continue."""
        updates = [each for update in self.updates for each in update.with_wrapped()]
        return TrainingState(
            self.parallel_model,
            updates,
            self.mode,
            self.cursor,
            self.average,
            self._kept,
            is_main=self._groups.placement.rank == 0,
        )

    @contextmanager
    def shared_weights(self) -> Iterator[None]:
        """Load the weights to evaluate and export inside the block: their average, if there is
        one, or those that the replicas share."""
        state_copies.let_end()
        with self.mode.shared_weights(), self.average.loaded() if self.average else nullcontext():
            self.parallel_model.reshard()  # weights gathered before would stay in use
            try:
                yield
            finally:
                self.parallel_model.reshard()

    def release_groups(self) -> None:
        """Release all process groups; the state stays."""
        state_copies.let_end()
        with suppress(RuntimeError):  # a pending collective of a broken group
            self.monitor.close()
        self.mode.context.lane.close()
        self.parallel_model.close()

    def close(self) -> None:
        """Release the process groups before they are destroyed.

        If this held the last reference to a group, the group's destructor would run with Python's
        GIL held and join the group's threads, which may be waiting for the GIL.
        """
        self.mode.close()
        self._noise.finish()
        self.close_abruptly()

    def close_abruptly(self) -> None:
        """Close without communication: the others are gone or also close abruptly."""
        self.release_groups()
        del self.parallel_model

    def _new_monitor(self) -> Monitor:
        where = self.layout, self._groups, self._telemetry, self._faults
        return Monitor(self.state, *where, self.updates, self._buffers, self._may_retire)

    def _sync_hook(self) -> Hook:
        where = self.sync, self.layout, self._groups, self.parallel_model
        return sync_hook(*where, self.updates[0].optimizer, self._telemetry.sync_changed)

    def _new_gradients(self) -> list[GradientComputation]:
        common = (self.training, self.layout, self._groups, self.mode)
        self._noise.begin(self.layout)
        return [
            gradient_computation(*common, update.scaling, self._noise, self.batches, update.phase)
            for update in self.updates
        ]

    def _new_settling(self) -> BufferSettling:
        conflict = f"--sync {self.sync.mode}" if self.sync.computes_apart(self.layout) else None
        return BufferSettling(
            self._buffers,
            self.training.buffers,
            self.parallel_model.trial.steady,
            self.parallel_model.data_group,
            conflict="--pipeline" if self.layout.pipeline > 1 else conflict,
        )
