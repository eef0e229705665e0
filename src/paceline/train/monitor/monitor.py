"""Checks during training: stragglers, non-finite gradients and diverged replicas."""

import signal
from collections.abc import Callable, Sequence

import torch

from paceline.comm.groups import Groups
from paceline.data.loader import Batch
from paceline.parallel.parallel_model import ParallelModel
from paceline.specs import Faults, Layout, Refused, Slow
from paceline.train.gradients.accumulation import BatchLoss
from paceline.train.gradients.buffers import Buffers
from paceline.train.monitor.non_finite import FiniteGradients
from paceline.train.monitor.replica_check import Replicas, check_comparable, common_tensors
from paceline.train.monitor.stragglers import Cause, Stragglers
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.state.training_state import TrainingState
from paceline.train.state.updates import Update


class Monitor:
    """One worker's checks for stragglers, non-finite gradients and corrupt replicas."""

    def __init__(
        self,
        state: Callable[[], TrainingState],
        layout: Layout,
        groups: Groups,
        telemetry: Telemetry,
        faults: Faults,
        updates: Sequence[Update],
        buffers: Buffers,
        may_retire: Callable[[], bool],
    ) -> None:
        now = state()
        sync = now.mode.settings
        check_comparable(faults.check_every, sync)
        self._state, self._placement, self._telemetry = state, groups.placement, telemetry
        self._check_every, self._replace_slow = faults.check_every, faults.replace_slow
        self._may_retire = may_retire
        self._stragglers = (
            Stragglers(groups, telemetry.clock, self._write_straggler)
            if groups.placement.workers > 1
            else None
        )
        self._replicas = Replicas(layout, groups, telemetry.clock)
        self._alone = sync.replicas_differ
        self._skipped: torch.Tensor | None = None
        """1 on the device if it skips an update of the current step."""
        self._finite = FiniteGradients(
            layout,
            sync,
            groups,
            clips=all(update.clip is not None for update in updates),
            skips=all(update.can_skip for update in updates),
            buffers=buffers,
            on_non_finite=self._write_non_finite,
            last_loss=self._last_loss,
        )

    @property
    def squared_norm(self) -> torch.Tensor | None:
        """Squared gradient norm of the whole model, if known."""
        return self._finite.squared_norm

    @property
    def skip(self) -> torch.Tensor | None:
        """1 on the device if it is to skip the current update; None if the host has decided."""
        return self._finite.flag

    def learned(
        self, step: int, parallel_model: ParallelModel, learn: Callable[[], BatchLoss]
    ) -> BatchLoss:
        """Run `learn`, which computes gradients, and return its loss.

        If the gradient is not finite, run it once more.
        """
        learned = self._finite.learned(step, parallel_model, learn)
        if (skip := self._finite.flag) is not None:
            before = self._skipped
            self._skipped = skip if before is None else torch.maximum(before, skip)
        return learned

    def stepped(self, step: int, learned: BatchLoss, batch: Batch) -> None:
        """Record a step and run the checks after it, before a checkpoint. All workers call this."""
        skipped, self._skipped = self._skipped, None
        self._telemetry.stepped(
            learned.losses, learned.weights, batch.global_samples, batch.samples, skipped
        )
        self.check(step)

    def check(self, step: int) -> None:
        """Look for stragglers and for replicas that differ."""
        if self._stragglers is not None:
            self._stragglers.stepped(step)
        if self._check_every and step % self._check_every == 0:
            self._check_replicas(step)

    def close(self) -> None:
        """Wait for pending collectives."""
        if self._stragglers is not None:
            self._stragglers.close()

    def _check_replicas(self, step: int) -> None:
        state = self._state()
        optimizers = [update.optimizer for update in state.updates]
        tensors = common_tensors(state.parallel_model, optimizers)
        corrupt = self._replicas.repaired(step, tensors)
        if corrupt and self._replicas.tells(corrupt):
            workers = ", ".join(map(str, corrupt))
            self._telemetry.write(
                Refused,
                step=step,
                ranks=corrupt,
                what="corrupt",
                message=f"the weights or the optimizer's state of worker {workers} were corrupted;"
                " restored from the majority of the replicas",
            )

    def _write_straggler(self, step: int, times: float, cause: Cause, why: str) -> None:
        placement = self._placement
        self._telemetry.write(
            Slow,
            rank=placement.rank,
            slow_node=placement.node,
            step=step,
            times=times,
            why=why,
        )
        # A slow training loop or slow checkpointing would be as slow on another worker.
        if self._replace_slow and cause in ("computing", "data") and self._may_retire():
            # Die as if killed: the survivors regroup with a spare and repeat the step.
            signal.raise_signal(signal.SIGKILL)

    def _write_non_finite(self, step: int, ranks: list[int], message: str) -> None:
        if self._alone or self._placement.rank == 0:
            self._telemetry.write(
                Refused, step=step, ranks=ranks, what="not finite", message=message
            )

    def _last_loss(self) -> float:
        self._telemetry.report_all()
        return self._telemetry.progress.loss
