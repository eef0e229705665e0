"""Progress shared between the workers: one small all-reduce every half second.

Losses stay on the device; one collective sums a window of steps over the workers, and also carries
whether a worker was asked to stop. A step itself waits for nothing, and all workers decide alike at
the same step. The sum does not grow with the number of workers: each writes its own state.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.observe.event_writer import EventWriter
from paceline.parallel.step.step_clock import clock_of
from paceline.specs import (
    PARTS,
    Evaluated,
    Finished,
    Outcome,
    Started,
    Steps,
    SyncChanged,
    SyncSettings,
    Workers,
    WorkerState,
)
from paceline.train.monitor.logged_metrics import LoggedMetrics
from paceline.train.monitor.logged_rows import name_bits, packed_rows
from paceline.train.monitor.non_finite import not_finite, ranks_where
from paceline.train.monitor.profiler import Tracing
from paceline.train.monitor.step_windows import OTHERS, Progress, Unreported, Window, window_steps
from paceline.train.state.validator import Validator

STATES_PER_SECOND, STATES_APART_SECONDS = 2000, 5.0
"""Limit on worker states that all workers write per second, and the longest interval per worker."""

_ALL_SECONDS, _STOP, _SAVE, _REQUEUE, _REGROUP = range(OTHERS)


class Telemetry:
    """A worker's steps, reported in windows."""

    def __init__(
        self,
        groups: Groups,
        writer: EventWriter | None,
        wants_to_save: Callable[[], bool] = lambda: False,
        wants_to_regroup: Callable[[], bool] = lambda: False,
        *,
        waits: bool = True,
        tracing: Tracing | None = None,
    ) -> None:
        self.progress = Progress()
        self.clock = clock_of(groups.device)
        """This worker's step breakdown."""
        self.stop_asked = False
        """Whether this worker was asked to stop; a signal handler sets it."""
        self.requeue_asked = False
        """Whether the reason is a time limit; a signal handler sets it."""
        self._groups = groups
        self._writer = writer
        self._wants_to_save, self._wants_to_regroup = wants_to_save, wants_to_regroup
        self._waits = waits
        """Whether training waits for a window's sum. If not, the sum overlaps with the next window:
        workers that take local steps need not wait for each other here either."""
        self._tracing = tracing
        self._started: dict[str, Any] | None = None
        self._summing: list[Window] = []
        self._unsaid: list[Window] = []
        """Windows since this worker last wrote its state."""
        self._said_at = -math.inf
        self._window_steps = 1
        self._open = Unreported()
        self._edge = time.perf_counter()
        self.validator: Validator | None = None
        """The state of the training's validation; None if it has none."""
        self.logged = LoggedMetrics(groups, self.write_once)
        """Metrics of the user's loop."""

    def started(self, *, parameters: int, batch: int, steps: int, startup_seconds: float) -> None:
        """Write that training starts, before the first step."""
        self._started = {"parameters": parameters, "batch": batch, "steps": steps}
        placement, interface = self._groups.placement, self._groups.interface
        if self._writer and placement.leads_node:
            self._writer.write(
                Started(
                    time=time.time(),
                    node=placement.node,
                    generation=placement.generation,
                    ranks=placement.node_ranks,
                    workers=placement.workers,
                    nodes=placement.nodes,
                    device=self._groups.device.type,
                    backend=self._groups.backend,
                    interface=interface.name if interface else "none",
                    address=interface.address if interface else "none",
                    threads=torch.get_num_threads(),
                    parameters=parameters,
                    batch=batch,
                    steps=steps,
                    startup_seconds=startup_seconds,
                )
            )
        if self._tracing:
            self._tracing.started(self.progress.steps, steps)
        self._edge = time.perf_counter()

    def resumed(self, steps: int, samples: int, seconds: float) -> None:
        """Continue from the progress of an earlier start of the run."""
        progress = self.progress
        progress.steps, progress.samples, progress.seconds = steps, samples, seconds
        progress.regroup = False
        self._summing, self._open = [], Unreported()
        self.logged.take(1)
        self._window_steps = 1  # the same on survivors and new workers

    def reported(self) -> dict[str, Any]:
        """Return the progress that all workers have reported, as JSON values."""
        done = self.progress
        return {
            "steps": done.steps,
            "samples": done.samples,
            "seconds": done.seconds,
            "loss": done.loss,
            "window_steps": self._window_steps,
            "logged": self.logged.names,
            "validation": self.validator and self.validator.state_dict(),
        }

    def regrouped(self, reported: dict[str, Any], batches: Batches, done: int) -> None:
        """Continue in a new generation from one worker's `reported` progress.

        Backfill unreported steps up to `done` from the survivors' data."""
        progress = self.progress
        while self._summing:
            self._open.put_before(self._summing.pop().steps)
        known = progress.steps + len(self._open)
        self._open.forget(reported["steps"] - progress.steps)
        progress.steps, progress.samples = reported["steps"], reported["samples"]
        progress.seconds, progress.loss = reported["seconds"], reported["loss"]
        self._window_steps = reported["window_steps"]
        nothing = torch.zeros(batches.parts or (), device=self._groups.device)
        for step in range(max(progress.steps, known), done):
            self._open.add(nothing, nothing, batches.counts(step).global_samples, 0.0)
        progress.regroup = False
        self._edge = time.perf_counter()

    def restarted(self, seconds: float) -> None:
        """Write that training starts in a new generation."""
        if self._started is not None:
            self.started(**self._started | {"startup_seconds": seconds})

    def stepped(
        self,
        loss: torch.Tensor,
        weight: float | torch.Tensor,
        global_samples: int,
        local_samples: int,
    ) -> None:
        """Record a step: this worker's mean loss and its weight in the global mean; or one loss and
        weight per canonical part, with zeros for the parts of other workers."""
        now = time.perf_counter()
        logged = self.logged.take(local_samples)
        self._open.add(loss, weight, global_samples, now - self._edge, logged)
        self._edge = now
        if len(self._open) >= self._window_steps:
            self.report()
        if self._tracing:
            self._tracing.stepped()

    def report(self) -> None:
        """Sum the open window over the workers, write it, and act on the result."""
        earlier = len(self._summing)
        if self._open:
            losses, packed = self._pack()
            work, parts = self._groups.sum_later(packed), self.clock.take()
            names = self.logged.agreed, self.logged.names
            self._summing.append(Window(work, packed, losses, self._open, parts, *names))
            self._open = Unreported()
        for _ in range(earlier):
            self._read()
        if self._waits:
            self.report_all()

    def report_all(self) -> None:
        """Report all steps so far, and wait until all workers have."""
        if self._open:
            self.report()
        while self._summing:
            self._read()

    def _read(self) -> None:
        """Finish the earliest pending window, which stays pending if the sum is interrupted."""
        window = self._summing[0]
        if window.work is not None:
            with self.clock.during("communication"):
                window.work.wait()
        metrics = self.logged.means(window)
        del self._summing[0]
        count, others = len(window.steps), window.others()
        means = window.means(self.progress.loss)
        first = self.progress.steps + 1
        self.progress.steps += count
        self.progress.samples += sum(window.steps.samples)
        self.progress.seconds += sum(window.steps.seconds)
        self.progress.loss = means[-1]
        self._write(first, means, window)
        self.logged.write(first - 1, metrics)
        if self._writer:
            self._writer.check_folder()
        self.progress.stopped = others[_STOP] > 0
        self.progress.requeue = others[_REQUEUE] > 0
        self.progress.save_agreed = others[_SAVE] > 0
        self.progress.regroup = others[_REGROUP] > 0
        self._refuse_non_finite(first, means, window)
        self._window_steps = window_steps(others[_ALL_SECONDS] / self._groups.placement.workers)

    def sync_changed(self, step: int, sync: SyncSettings, why: str) -> None:
        """Record that the synchronization mode changes from this step on."""
        self.write_once(SyncChanged, step=step, sync=sync, why=why)

    def evaluated(self, step: int, samples: int, loss: float, metrics: dict[str, float]) -> None:
        """Record an evaluation of the model."""
        self.write_once(Evaluated, step=step, samples=samples, loss=loss, metrics=metrics)

    def finished(self, outcome: Outcome, reason: str | None = None) -> None:
        """Write the last state and how the training ended; `reason`: why before its last step."""
        if self._tracing:
            self._tracing.end()
        self._write_state()
        done = self.progress
        counts = {"steps": done.steps, "samples": done.samples, "seconds": done.seconds}
        self.write_once(Finished, outcome=outcome, reason=reason, **counts)

    def write_once(self, kind: Any, **fields: Any) -> None:
        """Write an event on worker 0, for all workers."""
        if self._groups.placement.rank == 0:
            self.write(kind, **fields)

    def write(self, kind: Any, **fields: Any) -> None:
        """Write an event from this worker."""
        placement = self._groups.placement
        if self._writer:
            common = {
                "time": time.time(),
                "node": placement.node,
                "generation": placement.generation,
            }
            self._writer.write(kind(**common | fields))

    def _pack(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this worker's losses, and the tensor to sum: weighted losses, weights, others."""
        device = self._groups.device
        weights = self._open.weights_on(device)
        others = [0.0] * OTHERS
        others[_ALL_SECONDS] = sum(self._open.seconds) / len(self._open)
        others[_STOP], others[_REQUEUE] = self.stop_asked, self.requeue_asked
        first = self._groups.placement.rank == 0
        others[_SAVE] = first and self._wants_to_save()
        others[_REGROUP] = first and self._wants_to_regroup()
        # A local batch of weight 0 must add nothing, whatever the loss of its padding sample is.
        losses = torch.where(weights > 0, torch.stack(self._open.losses).float(), 0.0)
        logged = self.logged
        others += name_bits(logged.names)
        summed = (
            (losses * weights).flatten(),
            weights.flatten(),
            *([packed_rows(self._open.logged, logged.agreed, device)] if logged.agreed else []),
            torch.tensor(others).to(device, non_blocking=True),
        )
        return losses, torch.cat(summed)

    def _write(self, first: int, means: list[float], window: Window) -> None:
        if self._writer is None:
            return
        steps = window.steps
        self.write_once(
            Steps, first=first, loss=means, seconds=steps.seconds, samples=steps.samples
        )
        self._unsaid.append(window)
        apart = min(STATES_APART_SECONDS, self._groups.placement.workers / STATES_PER_SECOND)
        if time.perf_counter() - self._said_at >= apart:
            self._write_state()

    def _write_state(self) -> None:
        """Write this worker's mean step time and breakdown since its last state."""
        windows, self._unsaid, self._said_at = self._unsaid, [], time.perf_counter()
        if self._writer is None or not windows:
            return
        placement, count = self._groups.placement, sum(len(window.steps) for window in windows)
        parts = {part: sum(window.parts.get(part, 0.0) for window in windows) for part in PARTS}
        state = WorkerState(
            rank=placement.rank,
            step=self.progress.steps,
            step_seconds=sum(sum(window.steps.seconds) for window in windows) / count,
            parts={part: _short(seconds / count) for part, seconds in parts.items() if seconds},
        )
        self._writer.write(
            Workers(
                time=time.time(),
                node=placement.node,
                generation=placement.generation,
                states=[state],
            )
        )

    def _refuse_non_finite(self, first: int, means: list[float], window: Window) -> None:
        offset = window.first_non_finite(means)
        if offset is None:
            return
        bad = not bool(window.losses[offset].isfinite().all())
        before = means[offset - 1] if offset else math.nan
        ranks = ranks_where(bad, self._groups)
        raise not_finite("loss", means[offset], first + offset, ranks, before)


def _short(seconds: float) -> float:
    """Round to 0.1 µs: most of an event file is digits."""
    return round(seconds, 7)
