"""Progress shared between the workers: one small all-reduce every half second.

Losses stay on the device; one collective sums a window of steps over the workers, and also carries
whether a worker was asked to stop. A step itself waits for nothing, and all workers decide alike at
the same step. The sum does not grow with the number of workers: each writes its own state.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.comm.host_copies import DelayedReading, queued_to
from paceline.data.batches import Batches
from paceline.observe.event_writer import EventWriter
from paceline.parallel.step.step_clock import clock_of
from paceline.specs import (
    Evaluated,
    Finished,
    Outcome,
    Started,
    Steps,
    SyncChanged,
    SyncSettings,
)
from paceline.train.monitor.logged_metrics import LoggedMetrics
from paceline.train.monitor.logged_rows import name_bits, packed_rows
from paceline.train.monitor.non_finite import not_finite
from paceline.train.monitor.profiler import Tracing
from paceline.train.monitor.skipped_steps import SkippedSteps, what_was_bad
from paceline.train.monitor.step_windows import (
    OTHERS,
    STEPS_BEHIND,
    Progress,
    Unreported,
    Window,
    check_sound,
    window_steps,
)
from paceline.train.monitor.worker_states import WorkerStates
from paceline.train.state.validator import Validator

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
        self._waits = waits and groups.device.type == "cpu"
        """Whether training waits for a window's sum. If not, the sum overlaps with the next window:
        workers that take local steps need not wait for each other here either, and none waits for
        its accelerator, unless that is far behind."""
        self._steps_behind = 1 if groups.device.type == "cpu" else STEPS_BEHIND
        self._tracing = tracing
        self._skipped = SkippedSteps(groups, self.write_once)
        self._started: dict[str, Any] | None = None
        self._summing: list[Window] = []
        self._states = WorkerStates(groups, self.write)
        self._window_steps = 1
        self._open = Unreported()
        self._steps_since_report = 0
        self._old_requests = 0
        """Windows under way whose request to save was answered."""
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
        progress.regroup, self._old_requests, self._steps_since_report = False, 0, 0
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
        self._open.keep(reported["steps"] - progress.steps, done - progress.steps)
        progress.steps, progress.samples = reported["steps"], reported["samples"]
        progress.seconds, progress.loss = reported["seconds"], reported["loss"]
        self._window_steps = reported["window_steps"]
        nothing = torch.zeros(batches.parts or (), device=self._groups.device)
        for step in range(max(progress.steps, known), done):
            self._open.add(nothing, nothing, batches.counts(step).global_samples, 0.0)
        progress.regroup, self._old_requests = False, 0
        self._steps_since_report = len(self._open)
        self._edge = time.perf_counter()

    def restarted(self, seconds: float, steps: int) -> None:
        """Write that training starts in a new generation, with the steps planned by now."""
        if self._started is not None:
            self.started(**self._started | {"startup_seconds": seconds, "steps": steps})

    def stepped(
        self,
        loss: torch.Tensor,
        weight: float | torch.Tensor,
        global_samples: int,
        local_samples: int,
        skipped: torch.Tensor | None = None,
    ) -> None:
        """Record a step: this worker's mean loss and its weight in the global mean; or one loss and
        weight per canonical part, with zeros for the parts of other workers. `skipped` is 1 on the
        device if it skipped the update."""
        now = time.perf_counter()
        logged = self.logged.take(local_samples)
        self._open.add(loss, weight, global_samples, now - self._edge, logged, skipped)
        self._edge = now
        self._steps_since_report += 1
        if self._steps_since_report >= self._window_steps:
            self.report()
        if self._tracing:
            self._tracing.stepped()

    def report(self) -> None:
        """Sum the open window over the workers, write it, and act on the result."""
        self._steps_since_report = 0
        self._begin_sum()
        while sum(len(window.steps) for window in self._summing[1:]) >= self._steps_behind:
            self._read()
        if self._waits:
            self.report_all()

    def report_all(self) -> None:
        """Report all steps so far, and wait until all workers have."""
        if self._open:
            self.report()
        while self._summing:
            self._read()

    def counted(self) -> tuple[Progress, Callable[[], None]]:
        """Return the progress of all steps so far, and a function that raises if one was bad: it
        waits, so call it in another thread. All workers call this together."""
        if self._groups.device.type == "cpu":
            self.report_all()
            return self.progress, lambda: None
        self._begin_sum()
        done, windows = replace(self.progress), tuple(self._summing)
        for window in windows:
            done.steps += len(window.steps)
            done.samples += sum(window.steps.samples)
            done.seconds += sum(window.steps.seconds)
        health = partial(self._groups.health.check, self._groups.device)
        return done, partial(check_sound, windows, health)

    def saves(self) -> None:
        """Note that a checkpoint is saved now, which answers earlier requests."""
        self.progress.save_agreed, self._old_requests = False, len(self._summing)

    def _begin_sum(self) -> None:
        if not self._open:
            return
        losses, packed = self._pack()
        reading = DelayedReading(packed, self._groups.sum_later(packed))
        names = self.logged.agreed, self.logged.names
        self._summing.append(Window(reading, losses, self._open, self.clock.take(), *names))
        self._open = Unreported()

    def _read(self) -> None:
        """Finish the earliest pending window, which stays pending if the sum is interrupted."""
        window = self._summing[0]
        # Alone, there is nobody to wait for.
        with self.clock.during("communication" if self._groups.placement.workers > 1 else "other"):
            window.reading.values()
        self._groups.health.check(self._groups.device)
        metrics = self.logged.means(window)
        del self._summing[0]
        count, others = len(window.steps), window.others()
        means = self._skipped.endured(self.progress, window)
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
        self.progress.save_agreed = others[_SAVE] > 0 and not self._old_requests
        self._old_requests = max(0, self._old_requests - 1)
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
        self._states.write(self.progress.steps)
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
            (self._open.with_skipped(losses) * weights).flatten(),
            weights.flatten(),
            *([packed_rows(self._open.logged, logged.agreed, device)] if logged.agreed else []),
            queued_to(device, torch.tensor(others)),
        )
        return losses, torch.cat(summed)

    def _write(self, first: int, means: list[float], window: Window) -> None:
        if self._writer is None:
            return
        steps = window.steps
        self.write_once(
            Steps, first=first, loss=means, seconds=steps.seconds, samples=steps.samples
        )
        self._states.add(window, self.progress.steps)

    def _refuse_non_finite(self, first: int, means: list[float], window: Window) -> None:
        for offset in window.non_finite(means)[:1]:
            before = means[offset - 1] if offset else math.nan
            what, ranks = what_was_bad(window, offset, self._groups)
            raise not_finite(what, means[offset], first + offset, ranks, before)
