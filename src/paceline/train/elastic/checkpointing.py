"""Save and restore a training: save schedule, source of a restore, sample ledger, final save."""

import sys
import time
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.saver import Cost, Saver
from paceline.checkpoints.storage_place import opened
from paceline.checkpoints.verification import good_at, newest_good
from paceline.comm.groups import Groups
from paceline.data.loader import Batch
from paceline.lease.lease import fence_of
from paceline.membership.service import Begun
from paceline.observe.event_writer import EventWriter
from paceline.observe.protection_state import ProtectionState
from paceline.schedulers.task_placement import is_preempted
from paceline.specs import (
    Damaged,
    NotSaved,
    Outcome,
    Placement,
    Resumed,
    Run,
    Saved,
    Source,
)
from paceline.specs.owned_files import write_owned
from paceline.train.elastic.agent import ElasticAgent
from paceline.train.elastic.kept_equality import check_kept_equal
from paceline.train.elastic.peer_copies import PeerCopies
from paceline.train.elastic.sample_record import SampleRecord
from paceline.train.elastic.snapshot import check_same_data, data_identity, snapshot_of
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.stepper import Stepper
from paceline.user.pretrained import Pretrained
from paceline.user.training import Training


class Checkpointing:
    """One worker's checkpoints, peer copies and sample ledger in a run."""

    def __init__(
        self,
        run: Run,
        training: Training,
        groups: Groups,
        writer: EventWriter,
        telemetry: Telemetry,
        agent: ElasticAgent | None,
        *,
        written: Training | None = None,
    ) -> None:
        """`written`: the training as the user wrote it, if a study has changed it."""
        self._run, self._training, self._groups = run, training, groups
        self._written = written or training
        self._writer, self._telemetry, self._agent = writer, telemetry, agent
        validation = training.validation
        saving = run.plan.saving
        self._settings = validation.keeping_best(saving) if validation else saving
        self.share = run.job.share
        """Whether the group can read what the run writes."""
        self._storage = opened(run.checkpoint_place, share=self.share)
        self._check_lease = fence_of(run)
        self._saver = self._new_saver()
        self._samples = SampleRecord(run, training) if saving.ledger else None
        self._saved_at = time.monotonic()
        self._restored_step = 0
        """The step of the checkpoint that this start of the run restored."""
        self._started_step: int | None = None
        """The step of the last checkpoint whose writing was started."""
        self.metrics: dict[str, float] = {}
        """Metrics of the last evaluation."""
        self._saving_state = ProtectionState(writer, "checkpoints")
        self._copying_state = ProtectionState(writer, "peer copies")
        if self._copies:
            self._copies.report_to(partial(self._report_protection, self._copying_state))

    @property
    def is_due_by_clock(self) -> bool:
        """Whether a checkpoint is due by the clock; worker 0's answer counts for all."""
        waited = time.monotonic() - self._saved_at
        return self._settings.every_steps is None and waited >= 60 * self._settings.every_minutes

    def before_step(self, stepper: Stepper, step: int, batch: Batch) -> None:
        """Write a step's samples to the ledger, before any weight can depend on them."""
        if self._samples is not None:
            self._samples.entering(stepper, step, batch)

    def after_step(self, stepper: Stepper, step: int) -> None:
        """Save or copy the state if it is due after this step."""
        if self._is_due(step):
            self.save(stepper)
        if self._copies and self._copies.is_due(step):
            progress, check = self._telemetry.counted()
            with self._telemetry.clock.during("checkpoint"):
                stepper.mode.drain()
                state = stepper.state()
                self._copies.copy(snapshot_of(state, progress, self._data, self.metrics, check))

    @property
    def best_file(self) -> Path:
        """The file for the weights of the best model."""
        return self._run.path / "best.safetensors"

    def save_best(self, stepper: Stepper) -> None:
        """Save the best model so far, unless the run saves nothing."""
        if self._settings.every_steps != 0:
            self.save(stepper)

    def save(self, stepper: Stepper) -> None:
        """Start to save a checkpoint after the last step. All workers call this together."""
        self._check_lease()
        progress, check = self._telemetry.counted()
        with self._telemetry.clock.during("checkpoint"):
            stepper.mode.drain()
            self._telemetry.saves()
            if progress.steps in (self._restored_step, self._started_step):
                return
            check_kept_equal(stepper.state().kept, self._groups)
            if self._samples is not None:
                self._samples.sync(progress.steps)
            state = stepper.state()
            self._saver.save(snapshot_of(state, progress, self._data, self.metrics, check))
            self._started_step, self._saved_at = progress.steps, time.monotonic()

    def described(self, training: Training) -> Training:
        """Return the training, without pretrained weights that are gone if there is a checkpoint,
        which is newer."""
        if training.pretrained is None or Pretrained.of(training.pretrained).exists:
            return training
        has_newer = self._run.job.starts_from is not None or self._storage.steps()
        return training.replace(pretrained=None) if has_newer else training

    def restore_checkpoint(self, stepper: Stepper) -> int:
        """Restore the newest good checkpoint, or the one that the run starts from; return its step,
        0 if there is none.

        All workers call this together.
        """
        began = time.perf_counter()
        saved = newest_good(self._storage, **self._together)
        if self._placement.rank == 0:
            self._check_lease()
            self._storage.clear_drafts()
        if saved is not None:
            check_same_data(saved.manifest, self._data)
        elif (first := self._run.job.starts_from) is not None:
            saved = good_at(opened(first.checkpoints), first.step, **self._together)
            check_same_data(saved.manifest, data_identity(self._written))
        if saved is not None:
            stepper.state().restore(saved)
            self._restored_step = saved.manifest.step
            if self._placement.rank == 0:
                seconds = time.perf_counter() - began
                self._write(Resumed, step=saved.manifest.step, seconds=seconds)
        self._all_agree(True)  # drafts are removed before any worker starts a new one
        self._saved_at = time.monotonic()
        if saved is None:
            self._telemetry.resumed(0, 0, 0.0)
            return 0
        return self._resumed(saved.manifest)

    def restore(self, stepper: Stepper, begin: Begun) -> tuple[int, Source]:
        """Restore the newer of peer copy and checkpoint; return its step and source.

        All workers call this together.
        """
        if self._copies and self._agent:
            manifest = self._copies.restore(
                stepper.state().restore,
                begin.roster,
                self._agent.name,
                begin.fact,
                self._all_agree,
                oldest_step=self._newest_saved_step(),
            )
            if manifest is not None:
                return self._resumed(manifest), "peers"
        done = self.restore_checkpoint(stepper)
        return done, "checkpoint" if done else "beginning"

    def begin(self, stepper: Stepper, done: int, lost: Iterable[int] = ()) -> None:
        """Begin a generation, which continues after step `done`; `lost`: ranks before it."""
        if self._samples is not None:
            self._samples.begin(stepper, self._placement, lost)
        agent = self._agent
        if self._copies and agent and agent.roster:
            self._copies.begin(agent.roster, agent.name, done, regrouped=agent.regrouped)

    def abandon(self) -> None:
        """Abandon the checkpoint that the previous generation was writing."""
        self._saver.abandon()
        if self._placement.rank == 0:
            self._check_lease()
            self._storage.clear_drafts()
        self._saver = self._new_saver()
        self._started_step = None

    def conclude(self, stepper: Stepper, *, stopped: bool) -> Outcome:
        """Save the last state, wait until it is complete, and return how the training ended.

        All workers call this together. A run that was stopped by its time limit or by preemption is
        requeued, unless this start has saved nothing new: that would never end.
        """
        if self._settings.every_steps != 0:
            self.save(stepper)
        preempted = stopped and not self._all_agree(self._placement.rank > 0 or not is_preempted())
        self._saver.wait()
        started = self._started_step
        complete = self._all_agree(started is not None and self._saver.last == started)
        if self._samples is not None:
            self._samples.close()
        requeue = complete and stopped and (self._telemetry.progress.requeue or preempted)
        if self._placement.rank == 0:
            self._request_requeue(requeue)
        if requeue:
            return "preempted" if preempted else "interrupted"
        return "stopped" if stopped else "finished"

    def _request_requeue(self, wanted: bool) -> None:
        try:
            self._run.requeue_file.unlink(missing_ok=True)  # left by workers that were cut off
            if wanted:
                write_owned(self._run.requeue_file, "")
        except OSError as error:  # the disk is full, but the state may be saved elsewhere
            why = f"the job will not be requeued: {error}; continue it with `paceline resume`"
            print(why, file=sys.stderr)

    @property
    def _placement(self) -> Placement:
        return self._groups.placement

    @property
    def _together(self) -> dict[str, Any]:
        """How this worker and the others verify a checkpoint."""
        return {
            "worker": self._placement.rank,
            "workers": self._placement.workers,
            "all_agree": self._all_agree,
            "on_damage": self._report_damage,
        }

    @property
    def _copies(self) -> PeerCopies | None:
        return self._agent.copies if self._agent else None

    @cached_property
    def _data(self) -> dict[str, int]:
        return data_identity(self._training)  # slow for an order of many shards

    def _is_due(self, step: int) -> bool:
        every = self._settings.every_steps
        if every is not None:
            return bool(every) and step % every == 0
        return self._telemetry.progress.save_agreed

    def _resumed(self, manifest: Manifest) -> int:
        self.metrics = manifest.metrics
        self._telemetry.resumed(manifest.step, manifest.samples, manifest.seconds)
        return manifest.step

    def _newest_saved_step(self) -> int:
        """Return the step of the newest checkpoint, damaged or not, the same on all workers."""
        found = [0, *self._storage.steps()][-1] if self._placement.rank == 0 else 0
        return int(self._groups.summed(found))

    def _new_saver(self) -> Saver:
        return Saver(
            self._storage,
            self._settings,
            worker=self._placement.rank,
            nodes=self._placement.ranks_by_node,
            attempt=self._placement.generation,
            check=self._check_lease,
            on_saved=self._report,
        )

    def _all_agree(self, good: bool) -> bool:
        """Return whether `good` holds on all workers. All workers call this together."""
        return self._groups.summed(float(not good)) == 0

    def _report(self, step: int, result: Cost | str) -> None:
        why = result if isinstance(result, str) else None
        if self._placement.rank == 0:  # it also knows of the others' failures
            self._report_protection(self._saving_state, step, why)
        if isinstance(result, str):
            print(f"could not write the checkpoint of step {step}: {result}", file=sys.stderr)
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

    def _report_protection(self, state: ProtectionState, step: int, why: str | None) -> None:
        here = self._placement
        if why is None:
            state.worked(step=step)
        else:
            state.failed(why, node=here.node, generation=here.generation, rank=here.rank, step=step)

    def _report_damage(self, step: int, flaw: str) -> None:
        print(f"skipped the damaged checkpoint of step {step}: {flaw}", file=sys.stderr)
        self._write(Damaged, step=step, message=flaw)

    def _write(self, kind: Any, **fields: Any) -> None:
        placement = self._placement
        self._writer.write(
            kind(time=time.time(), node=placement.node, generation=placement.generation, **fields)
        )
