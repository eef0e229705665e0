"""A training that can be interrupted: when its state is saved, and how it is taken up again."""

import sys
import time
from typing import Any

import torch

from paceline.checkpoints.ledger import Ledger
from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.saver import Cost, Saver, Snapshot
from paceline.checkpoints.storage import opened
from paceline.checkpoints.verification import newest_good
from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.data.order import fingerprint
from paceline.observe.event_writer import EventWriter
from paceline.schedulers.slurm_client import is_preempted
from paceline.specs import Damaged, Layout, NotSaved, PacelineError, Placement, Resumed, Run, Saved
from paceline.train.monitor.step_windows import Progress
from paceline.train.state.training_state import TrainedState
from paceline.user.training import Training


class Recovery:
    """Saves and restores the state of one run."""

    def __init__(self, run: Run, groups: Groups, writer: EventWriter) -> None:
        self._run, self._groups = run, groups
        self._saving = run.plan.saving
        self._writer = writer
        placement = self._saving.folder
        self._storage = opened(f"{placement}/{run.name}" if placement else run.checkpoints)
        self._saver = self._new_saver()
        self._ledger: Ledger | None = None
        self._saved_at = time.monotonic()
        self._taken_up = 0
        """The step of the checkpoint that this start of the run began with."""
        self._begun: int | None = None
        """The step of the last checkpoint that was begun."""

    def restore(self, state: TrainedState, data: dict[str, int]) -> Manifest | None:
        """Take up the newest good checkpoint, if there is one; all workers call this together."""
        began = time.perf_counter()
        manifest = newest_good(
            self._storage,
            worker=self._placement.rank,
            workers=self._placement.workers,
            all_agree=self.all_agree,
            tell=self._tell_damage,
        )
        if self._placement.rank == 0:
            self._storage.clear_drafts()
        if manifest is not None:
            _check_data(manifest, data)
            state.restore(manifest, self._storage)
            self._taken_up = manifest.step
            if self._placement.rank == 0:
                seconds = time.perf_counter() - began
                self._write(Resumed, step=manifest.step, seconds=seconds)
        # Drafts are gone before anybody begins a new one.
        self.all_agree(True)
        self._saved_at = time.monotonic()
        return manifest

    def newest_step(self) -> int:
        """The step of the newest checkpoint, damaged or not; all workers call this together."""
        found = [0, *self._storage.steps()][-1] if self._placement.rank == 0 else 0
        told = torch.tensor(found, dtype=torch.float64, device=self._groups.device)
        return int(self._groups.sum(told))

    def open_ledger(self, layout: Layout, batches: Batches) -> None:
        """Write down from now on which samples enter the steps, if the plan says so.

        One worker does so for each part of the batches.
        """
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
        position = layout.position(self._placement.rank)
        if self._saving.ledger and position.stage == position.slice == 0:
            self._ledger = Ledger(
                self._run.ledger,
                generation=self._placement.generation,
                part=batches.rank,
                parts=batches.workers,
                resumed=batches.first_step,
                samples=batches.order.samples,
            )

    def entering(self, step: int, epoch: int, ids: tuple[int, ...]) -> None:
        """A step is about to be taken on these samples."""
        if self._ledger is not None:
            self._ledger.entering(step, epoch, ids)

    def regrouped(self) -> None:
        """Another generation has begun: what the one before was about to save does not count."""
        self._saver.abandon()
        if self._placement.rank == 0:
            self._storage.clear_drafts()
        self._saver = self._new_saver()
        self._begun = None

    @property
    def wants_to_save(self) -> bool:
        """Whether it is time to save by the clock; what worker 0 says counts."""
        waited = time.monotonic() - self._saved_at
        return self._saving.every_steps is None and waited >= 60 * self._saving.every_minutes

    def is_due(self, step: int, progress: Progress) -> bool:
        """Whether to save after this step, the same on all workers."""
        if self._saving.every_steps is not None:
            return bool(self._saving.every_steps) and step % self._saving.every_steps == 0
        return progress.save_agreed

    def save(
        self,
        state: TrainedState,
        progress: Progress,
        data: dict[str, int],
        metrics: dict[str, float],
    ) -> None:
        """Begin to save the state after the last step; all workers call this together."""
        progress.save_agreed = False  # a window that was packed before this may still have asked
        if progress.steps in (self._taken_up, self._begun):
            return
        if self._ledger is not None:
            self._ledger.sync()
        self._saver.save(snapshot_of(state, progress, data, metrics))
        self._begun, self._saved_at = progress.steps, time.monotonic()

    def is_preempted(self) -> bool:
        """Whether the scheduler takes the nodes for another job; all workers call this together."""
        return not self.all_agree(self._placement.rank > 0 or not is_preempted())

    def conclude(self, *, ask_to_requeue: bool) -> bool:
        """Wait until the last checkpoint is complete; whether the run is to have another turn.

        All workers call this together. A start that has saved nothing new does not ask for another:
        that would never end.
        """
        self._saver.wait()
        complete = self.all_agree(self._begun is not None and self._saver.last == self._begun)
        if self._ledger is not None:
            self._ledger.close()
        requeue = ask_to_requeue and complete
        if self._placement.rank == 0:
            self._run.requeue_file.unlink(missing_ok=True)  # of some that were cut off before
            if requeue:
                self._run.requeue_file.touch()
        return requeue

    @property
    def saves(self) -> bool:
        """Whether the plan wants checkpoints at all."""
        return self._saving.every_steps != 0

    @property
    def _placement(self) -> Placement:
        return self._groups.placement

    def _new_saver(self) -> Saver:
        return Saver(
            self._storage,
            self._saving,
            worker=self._placement.rank,
            workers=self._placement.workers,
            attempt=self._placement.generation,
            tell=self._tell,
        )

    def all_agree(self, good: bool) -> bool:
        """Whether it is so on all workers, which call this together."""
        against = torch.tensor(float(not good), device=self._groups.device)
        return float(self._groups.sum(against)) == 0

    def _tell(self, step: int, result: Cost | str) -> None:
        if isinstance(result, str):
            print(f"the checkpoint of step {step} was not written: {result}", file=sys.stderr)
            self._write(NotSaved, step=step, rank=self._placement.rank, message=result)
            return
        self._write(
            Saved,
            step=step,
            bytes=result.bytes,
            linked_bytes=result.linked_bytes,
            seconds=result.seconds,
            stall_seconds=result.stall_seconds,
        )

    def _tell_damage(self, step: int, flaw: str) -> None:
        print(f"the checkpoint of step {step} is damaged and left out: {flaw}", file=sys.stderr)
        self._write(Damaged, step=step, message=flaw)

    def _write(self, kind: Any, **fields: Any) -> None:
        placement = self._placement
        self._writer.write(
            kind(time=time.time(), node=placement.node, generation=placement.generation, **fields)
        )


def snapshot_of(
    state: TrainedState, progress: Progress, data: dict[str, int], metrics: dict[str, float]
) -> Snapshot:
    """The state after the last step, as a checkpoint keeps it; all workers call this together."""
    state.arranged.settle()
    head = Manifest.head(
        progress.steps,
        samples=progress.samples,
        seconds=progress.seconds,
        data=data,
        metrics=metrics,
        values=state.values(),
    )
    return Snapshot(head, state.sections(), state.scalars())


def data_facts(training: Training) -> dict[str, int]:
    """What the order of a training's samples depends on."""
    order = training.sample_order()
    return {
        "samples": order.samples,
        "batch": training.batch,
        "seed": training.seed,
        "order": fingerprint(order),
    }


def _check_data(manifest: Manifest, data: dict[str, int]) -> None:
    """The step says which samples were seen only if their order is the same as it was."""
    for what, now in data.items():
        before = manifest.data.get(what)
        if what == "order" and before != now:
            raise PacelineError(
                "the samples come in another order than when the run was started: which of them it"
                f" has not seen since step {manifest.step} could not be told",
                fix="resume with the dataset, mixture, window and order that it was started with,"
                " or start a new run",
            )
        if before != now:
            raise PacelineError(
                f"the run was started with {what}={before}, but has {what}={now} now: which samples"
                f" it has not seen since step {manifest.step} could not be told",
                fix=f"resume with {what}={before}, or start a new run",
            )
