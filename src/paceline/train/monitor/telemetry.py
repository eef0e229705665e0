"""What the workers tell each other about their steps: one small sum every half second.

Losses stay on the device as they come; a window of steps is then summed over the workers in one
collective, which also carries whether anybody was asked to stop. So a step itself waits for
nothing, and all workers decide the same at the same step. What is summed is as small with ten
thousand workers as with two: how each of them fares it writes down itself.
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
    Agreed,
    Evaluated,
    Finished,
    Outcome,
    Started,
    Steps,
    SyncSettings,
    Workers,
    WorkerState,
)
from paceline.train.monitor.non_finite import not_finite, ranks_where
from paceline.train.monitor.profiler import Tracing
from paceline.train.monitor.step_windows import OTHERS, Progress, Unreported, Window, window_steps

STATES_PER_SECOND, STATES_APART_SECONDS = 2000, 5.0
"""What more than a thousand workers write together, if each still writes at least so often."""

_ALL_SECONDS, _STOP, _SAVE, _REQUEUE, _REGROUP = range(OTHERS)


class Telemetry:
    """Collects a worker's steps and reports them window by window."""

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
        """What this worker's time goes to."""
        self.stop_asked = False
        """Whether this worker was asked to stop; a signal handler sets it."""
        self.requeue_asked = False
        """Whether that was for a time limit; a signal handler sets it."""
        self._groups = groups
        self._writer = writer
        self._wants_to_save, self._wants_to_regroup = wants_to_save, wants_to_regroup
        self._waits = waits
        """Whether a window is summed while training stands still, or during the next window: where
        workers take steps of their own, they need not wait for each other here either."""
        self._tracing = tracing
        self._started: dict[str, Any] | None = None
        self._summing: list[Window] = []
        self._unsaid: list[Window] = []
        """Windows since this worker last wrote how it did."""
        self._said_at = -math.inf
        self._window_steps = 1
        self._open = Unreported()
        self._edge = time.perf_counter()

    def started(self, *, parameters: int, batch: int, steps: int, startup_seconds: float) -> None:
        """The first step begins."""
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
        """Earlier starts of the run have come so far."""
        progress = self.progress
        progress.steps, progress.samples, progress.seconds = steps, samples, seconds
        progress.regroup = False
        self._summing, self._open = [], Unreported()
        self._window_steps = 1  # the same on those who have been there and those who come

    def reported(self) -> dict[str, Any]:
        """How far the workers have reported together, in words that JSON can hold."""
        done = self.progress
        return {
            "steps": done.steps,
            "samples": done.samples,
            "seconds": done.seconds,
            "loss": done.loss,
            "window_steps": self._window_steps,
        }

    def regrouped(self, reported: dict[str, Any], batches: Batches, done: int) -> None:
        """Go on in another generation, of which one worker had reported so much before; what is
        not reported of the steps that are done is, with what those who are left know of them."""
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
        """The first step of another generation begins."""
        if self._started is not None:
            self.started(**self._started | {"startup_seconds": seconds})

    def stepped(
        self, loss: torch.Tensor, weight: float | torch.Tensor, global_samples: int
    ) -> None:
        """One step is done: this worker's mean loss, and what it weighs in the global mean; or, of
        every part of the batch, its loss and weight, with zeros for what other workers have."""
        now = time.perf_counter()
        self._open.add(loss, weight, global_samples, now - self._edge)
        self._edge = now
        if len(self._open) >= self._window_steps:
            self.report()
        if self._tracing:
            self._tracing.stepped()

    def report(self) -> None:
        """Sum the open window over the workers, write it, and act on what it says."""
        earlier = len(self._summing)
        if self._open:
            losses, packed = self._pack()
            work, parts = self._groups.sum_later(packed), self.clock.take()
            self._summing.append(Window(work, packed, losses, self._open, parts))
            self._open = Unreported()
        for _ in range(earlier):
            self._read()
        if self._waits:
            self.report_all()

    def report_all(self) -> None:
        """Report all steps up to now, and wait until the others have, too."""
        if self._open:
            self.report()
        while self._summing:
            self._read()

    def _read(self) -> None:
        """The earliest window that is being summed; it stays known where that is interrupted."""
        window = self._summing[0]
        if window.work is not None:
            with self.clock.during("communication"):
                window.work.wait()
        del self._summing[0]
        count, others = len(window.steps), window.others()
        means = window.means(self.progress.loss)
        first = self.progress.steps + 1
        self.progress.steps += count
        self.progress.samples += sum(window.steps.samples)
        self.progress.seconds += sum(window.steps.seconds)
        self.progress.loss = means[-1]
        self._write(first, means, window)
        self.progress.stopped = others[_STOP] > 0
        self.progress.requeue = others[_REQUEUE] > 0
        self.progress.save_agreed = others[_SAVE] > 0
        self.progress.regroup = others[_REGROUP] > 0
        self._refuse_non_finite(first, means, window)
        self._window_steps = window_steps(others[_ALL_SECONDS] / self._groups.placement.workers)

    def agreed(self, step: int, sync: SyncSettings, why: str) -> None:
        """From a step on, replicas agree in another way."""
        self.tell(Agreed, step=step, sync=sync, why=why)

    def evaluated(self, step: int, samples: int, loss: float, metrics: dict[str, float]) -> None:
        """The model was evaluated on a dataset."""
        self.tell(Evaluated, step=step, samples=samples, loss=loss, metrics=metrics)

    def finished(self, outcome: Outcome) -> None:
        """The last step is done: say how it ended."""
        if self._tracing:
            self._tracing.end()
        self._write_state()
        done = self.progress
        self.tell(
            Finished,
            outcome=outcome,
            steps=done.steps,
            samples=done.samples,
            seconds=done.seconds,
        )

    def tell(self, kind: Any, **fields: Any) -> None:
        """Write an event that worker 0 says for all."""
        if self._groups.placement.rank == 0:
            self.say(kind, **fields)

    def say(self, kind: Any, **fields: Any) -> None:
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
        """This worker's losses, and what is summed: weighted losses, weights, other numbers."""
        device = self._groups.device
        weights = torch.stack(
            [
                torch.as_tensor(weight, dtype=torch.float32, device=device)
                for weight in self._open.weights
            ]
        )
        others = [0.0] * OTHERS
        others[_ALL_SECONDS] = sum(self._open.seconds) / len(self._open)
        others[_STOP], others[_REQUEUE] = self.stop_asked, self.requeue_asked
        first = self._groups.placement.rank == 0
        others[_SAVE] = first and self._wants_to_save()
        others[_REGROUP] = first and self._wants_to_regroup()
        # A share that counts for nothing must add nothing, whatever its borrowed sample gave.
        losses = torch.where(weights > 0, torch.stack(self._open.losses).float(), 0.0)
        summed = (
            (losses * weights).flatten(),
            weights.flatten(),
            torch.tensor(others, device=device),
        )
        return losses, torch.cat(summed)

    def _write(self, first: int, means: list[float], window: Window) -> None:
        if self._writer is None:
            return
        steps = window.steps
        self.tell(Steps, first=first, loss=means, seconds=steps.seconds, samples=steps.samples)
        self._unsaid.append(window)
        apart = min(STATES_APART_SECONDS, self._groups.placement.workers / STATES_PER_SECOND)
        if time.perf_counter() - self._said_at >= apart:
            self._write_state()

    def _write_state(self) -> None:
        """How this worker did since it last said so."""
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
    """To the tenth of a microsecond: files of events are mostly digits."""
    return round(seconds, 7)
