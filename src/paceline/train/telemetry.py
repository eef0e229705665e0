"""What the workers tell each other about their steps: one small sum every half second.

Losses stay on the device as they come; a window of steps is then summed over the workers in one
collective, which also carries whether anybody was asked to stop. So a step itself waits for
nothing, and all workers decide the same at the same step. What is summed is as small with ten
thousand workers as with two: how each of them fares it writes down itself.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from paceline.observe.events import EventWriter
from paceline.specs import (
    PARTS,
    Agreed,
    Evaluated,
    Finished,
    Outcome,
    PacelineError,
    Part,
    Started,
    Steps,
    Sync,
    Workers,
    WorkerState,
)
from paceline.train.clock import clock_of
from paceline.train.groups import Groups
from paceline.train.tracing import Tracing

WINDOW_SECONDS = 0.5
LONGEST_WINDOW_STEPS = 200
STATES_PER_SECOND, STATES_APART_SECONDS = 2000, 5.0
"""What more than a thousand workers write together, if each still writes at least so often."""

_ALL_SECONDS, _STOP, _SAVE, _REQUEUE = range(4)
"""Numbers that are summed beside the losses and their weights."""


@dataclass
class Progress:
    """What is known of the run so far, the same on every worker."""

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    loss: float = math.nan
    """The last reported step's mean over its global batch."""
    stopped: bool = False
    """Whether the workers were asked to stop and have agreed to."""
    requeue: bool = False
    """Whether that was for the time limit, and the run is to go on in another turn."""
    save_agreed: bool = False
    """Whether it is time to save by the clock of worker 0."""


@dataclass(frozen=True)
class _Window:
    """Steps that are being summed over the workers."""

    work: "dist.Work | None"
    packed: torch.Tensor
    losses: torch.Tensor
    """This worker's own; 0 where it had none that counts."""
    samples: list[int]
    seconds: list[float]
    parts: dict[Part, float]
    """What this worker's time went to."""


class Telemetry:
    """Collects a worker's steps and reports them window by window."""

    def __init__(
        self,
        groups: Groups,
        writer: EventWriter | None,
        wants_to_save: Callable[[], bool] = lambda: False,
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
        self._wants_to_save = wants_to_save
        self._waits = waits
        """Whether a window is summed while training stands still, or during the next window: where
        workers take steps of their own, they need not wait for each other here either."""
        self._tracing = tracing
        self._summing: _Window | None = None
        self._unsaid: list[_Window] = []
        """Windows since this worker last wrote how it did."""
        self._said_at = -math.inf
        self._window_steps = 1
        self._losses: list[torch.Tensor] = []
        self._weights: list[float | torch.Tensor] = []
        self._samples: list[int] = []
        self._seconds: list[float] = []
        self._edge = time.perf_counter()

    def started(self, *, parameters: int, batch: int, steps: int, startup_seconds: float) -> None:
        """The first step begins."""
        place, interface = self._groups.place, self._groups.interface
        if self._writer and place.leads_node:
            self._writer.write(
                Started(
                    time=time.time(),
                    node=place.node,
                    generation=place.generation,
                    ranks=place.node_ranks,
                    workers=place.workers,
                    nodes=place.nodes,
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

    def stepped(
        self, loss: torch.Tensor, weight: float | torch.Tensor, global_samples: int
    ) -> None:
        """One step is done: this worker's mean loss, and what it weighs in the global mean."""
        now = time.perf_counter()
        self._seconds.append(now - self._edge)
        self._edge = now
        self._losses.append(loss)
        self._weights.append(weight)
        self._samples.append(global_samples)
        if len(self._losses) >= self._window_steps:
            self.report()
        if self._tracing:
            self._tracing.stepped()

    def report(self) -> None:
        """Sum the open window over the workers, write it, and act on what it says."""
        earlier, self._summing = self._summing, None
        if self._losses:
            losses, packed = self._pack()
            work, parts = self._groups.sum_later(packed), self.clock.take()
            self._summing = _Window(work, packed, losses, self._samples, self._seconds, parts)
            self._losses, self._weights, self._samples, self._seconds = [], [], [], []
        if earlier is not None:
            self._read(earlier)
        if self._waits:
            self.report_all()

    def report_all(self) -> None:
        """Report all steps up to now, and wait until the others have, too."""
        if self._losses:
            self.report()
        if self._summing is not None:
            summing, self._summing = self._summing, None
            self._read(summing)

    def _read(self, window: "_Window") -> None:
        if window.work is not None:
            with self.clock.during("exchange"):
                window.work.wait()
        count, summed = len(window.samples), window.packed.tolist()
        losses, weights, others = summed[:count], summed[count : 2 * count], summed[2 * count :]
        means = [
            loss / weight if weight else math.nan
            for loss, weight in zip(losses, weights, strict=True)
        ]
        first = self.progress.steps + 1
        self.progress.steps += count
        self.progress.samples += sum(window.samples)
        self.progress.seconds += sum(window.seconds)
        self.progress.loss = means[-1]
        self._write(first, means, window)
        self.progress.stopped = others[_STOP] > 0
        self.progress.requeue = others[_REQUEUE] > 0
        self.progress.save_agreed = others[_SAVE] > 0
        self._refuse_non_finite(first, means, window)
        self._window_steps = _window_steps(others[_ALL_SECONDS] / self._groups.place.workers)

    def agreed(self, step: int, sync: Sync, why: str) -> None:
        """From a step on, replicas agree in another way."""
        self._tell(Agreed, step=step, sync=sync, why=why)

    def evaluated(self, step: int, samples: int, loss: float, metrics: dict[str, float]) -> None:
        """The model was evaluated on a dataset."""
        self._tell(Evaluated, step=step, samples=samples, loss=loss, metrics=metrics)

    def finished(self, outcome: Outcome) -> None:
        """The last step is done: say how it ended."""
        if self._tracing:
            self._tracing.end()
        self._write_state()
        done = self.progress
        self._tell(
            Finished,
            outcome=outcome,
            steps=done.steps,
            samples=done.samples,
            seconds=done.seconds,
        )

    def _tell(self, kind: Any, **fields: Any) -> None:
        """What worker 0 says for all."""
        place = self._groups.place
        if self._writer and place.rank == 0:
            self._writer.write(
                kind(time=time.time(), node=place.node, generation=place.generation, **fields)
            )

    def _pack(self) -> tuple[torch.Tensor, torch.Tensor]:
        """This worker's losses, and what is summed: weighted losses, weights, other numbers."""
        device = self._groups.device
        weights = torch.stack(
            [
                torch.as_tensor(weight, dtype=torch.float32, device=device)
                for weight in self._weights
            ]
        )
        others = [0.0] * 4
        others[_ALL_SECONDS] = sum(self._seconds) / len(self._seconds)
        others[_STOP], others[_REQUEUE] = self.stop_asked, self.requeue_asked
        others[_SAVE] = self._groups.place.rank == 0 and self._wants_to_save()
        # A share that counts for nothing must add nothing, whatever its borrowed sample gave.
        losses = torch.where(weights > 0, torch.stack(self._losses).float(), 0.0)
        return losses, torch.cat([losses * weights, weights, torch.tensor(others, device=device)])

    def _write(self, first: int, means: list[float], window: "_Window") -> None:
        if self._writer is None:
            return
        self._tell(Steps, first=first, loss=means, seconds=window.seconds, samples=window.samples)
        self._unsaid.append(window)
        apart = min(STATES_APART_SECONDS, self._groups.place.workers / STATES_PER_SECOND)
        if time.perf_counter() - self._said_at >= apart:
            self._write_state()

    def _write_state(self) -> None:
        """How this worker did since it last said so."""
        windows, self._unsaid, self._said_at = self._unsaid, [], time.perf_counter()
        if self._writer is None or not windows:
            return
        place, count = self._groups.place, sum(len(window.samples) for window in windows)
        parts = {part: sum(window.parts.get(part, 0.0) for window in windows) for part in PARTS}
        state = WorkerState(
            rank=place.rank,
            step=self.progress.steps,
            step_seconds=sum(sum(window.seconds) for window in windows) / count,
            parts={part: _short(seconds / count) for part, seconds in parts.items() if seconds},
        )
        self._writer.write(
            Workers(time=time.time(), node=place.node, generation=place.generation, states=[state])
        )

    def _refuse_non_finite(self, first: int, means: list[float], window: "_Window") -> None:
        if all(math.isfinite(mean) for mean in means):
            return
        offset = next(index for index, mean in enumerate(means) if not math.isfinite(mean))
        place = self._groups.place
        bad = torch.zeros(place.workers, device=self._groups.device)
        bad[place.rank] = ~window.losses[offset].isfinite()
        culprits = self._groups.sum(bad).nonzero().flatten().tolist()
        of = f" on worker {', '.join(map(str, culprits))}" if place.workers > 1 else ""
        before = f" (it was {means[offset - 1]:.4g} one step before)" if offset else ""
        raise PacelineError(
            f"the loss became {means[offset]} at step {first + offset}{of}{before}",
            fix="lower the learning rate, add warm-up, give Training(clip=1.0), or look for bad"
            " samples in the data",
        )


def _short(seconds: float) -> float:
    """To the tenth of a microsecond: files of events are mostly digits."""
    return round(seconds, 7)


def _window_steps(mean_step_seconds: float) -> int:
    return max(1, min(LONGEST_WINDOW_STEPS, round(WINDOW_SECONDS / max(mean_step_seconds, 1e-6))))
