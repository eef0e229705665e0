"""Choose the mode that is predicted to reach a loss soonest, during the run.

The first steps are local steps, which show the time of a step; the round after them shows the speed
of the link. The choice (`choosing.py`) follows, and is reconsidered every few steps: another mode
may be better once the link is faster or slower. All workers decide at the same steps on the same
figures, the mean over their measurements. These are communicated during training, after the
transfers in flight, so a look costs next to nothing.
"""

import functools
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import torch

from paceline.comm.dtensor import local_tensor
from paceline.specs import SyncSettings, default_sync, read_sync
from paceline.sync.hook import EngineHook, Hook, HookContext, SyncTensor
from paceline.sync.mode import SyncMode
from paceline.sync.modes.auto.choosing import WORTH, Choice, Measured, best, predicted
from paceline.sync.modes.local import Local

FIRST = Local(every=4)
"""The mode before anything is measured."""
FIRST_LOOK = 8
WARM_UP = 3
"""Initial steps to leave out, because they take longer than others."""
SECOND_LOOK = 16
"""The steps after the first look show whether its choice was right."""
LOOK_EVERY = 64
ANSWER_STEPS = 4
"""Steps from a look to its decision."""


class AutoHook(Hook):
    """A hook that delegates to that of the chosen mode."""

    def __init__(self, settings: SyncSettings, context: HookContext) -> None:
        super().__init__(settings, context)
        self._mode: Hook = FIRST.hook(context)
        self._parameters = sum(each.local.numel() for each in context.learning)
        self._compute_seconds: float | None = None
        """Computation time of a step without communication."""
        self._asked: Future[Measured | None] | None = None
        """The measurements that are being communicated."""
        self._compute: list[float] = []
        self._sent, self._calls, self._busy = 0, 0, 0.0
        """Bytes, calls and seconds of communication at the last look."""

    @property
    def sync(self) -> SyncSettings:
        """The current mode."""
        return self._mode.settings

    @property
    def replicas_differ(self) -> bool:  # type: ignore[override]
        """Whether weights differ between the replicas in the current mode."""
        return self._mode.replicas_differ

    def last_backward(self) -> Any:
        """Return a context manager for the backward that completes a step's gradients."""
        return self._mode.last_backward()

    def before_forward(self, step: int) -> None:
        """Start timing the step."""
        self._began = time.perf_counter()
        self._waited = self.context.lane.waited_seconds
        self._mode.before_forward(step)

    def after_backward(self, step: int) -> None:
        """Called when this worker's gradients are complete."""
        self._mode.after_backward(step)

    def before_step(self, step: int) -> bool:
        """Return whether the worker's own optimizer updates the weights."""
        return self._mode.before_step(step)

    def after_step(self, step: int) -> None:
        """Measure or decide, at the scheduled steps."""
        self._mode.after_step(step)
        waited = self.context.lane.waited_seconds - self._waited
        self._compute.append(time.perf_counter() - self._began - waited)
        looks = step in (FIRST_LOOK, SECOND_LOOK) or step % LOOK_EVERY == 0
        if looks and self.context.transport.workers > 1:
            own = self._own_seconds(step)
            self._asked = self.context.lane.begin(functools.partial(self._look, own))
            self._compute = []
        elif step - ANSWER_STEPS in (FIRST_LOOK, SECOND_LOOK) or step % LOOK_EVERY == ANSWER_STEPS:
            self._decide(step)

    def consensus(self) -> list[torch.Tensor] | None:
        """Return the weights that the replicas share."""
        return self._mode.consensus()

    def conclude(self) -> None:
        """Leave one model on all workers."""
        self._mode.conclude()

    def drain(self) -> None:
        """Wait until nothing of this worker is in flight."""
        self._mode.drain()

    def saved_tensors(self) -> Iterator[SyncTensor]:
        """Yield the tensors of the current mode."""
        return self._mode.saved_tensors()

    def numbers(self) -> dict[str, Any]:
        """Return the current mode and its values."""
        return {"chosen": self.sync.model_dump(), **self._mode.numbers()}

    def resuming(self, numbers: Mapping[str, Any]) -> None:
        """Switch to the mode of the checkpoint."""
        if "chosen" in numbers:
            self._become(read_sync(numbers["chosen"]))

    def restored(self, numbers: Mapping[str, Any], *, same_replicas: bool) -> None:
        """Continue in the mode of the checkpoint."""
        self._mode.restored(numbers, same_replicas=same_replicas)

    def close(self) -> None:
        """Release the current mode's resources."""
        self._mode.close()

    def _become(self, sync: SyncSettings) -> None:
        assert isinstance(sync, SyncMode)
        self._mode.close()
        self._mode = sync.hook(self.context)

    def _look(self, own_seconds: float) -> Measured | None:
        """Return the mean measurements of all workers; None if nothing was communicated since the
        last look. Runs on the lane, so nothing else is in flight."""
        lane, transport = self.context.lane, self.context.transport
        began = time.perf_counter()
        sent, busy = transport.sent_bytes - self._sent, lane.busy_seconds - self._busy
        calls = transport.calls - self._calls
        # The first of two small collectives waits for the other workers.
        self._mean([0.0])
        before = time.perf_counter()
        self._mean([0.0])
        latency = time.perf_counter() - before
        carrying = max(busy - calls * latency, 0.1 * busy)
        seconds, rate, latency = self._mean(
            [own_seconds, sent / carrying if sent else 0.0, latency]
        )
        self._sent, self._calls = transport.sent_bytes, transport.calls
        # The lane will add the time of this look.
        self._busy = lane.busy_seconds + time.perf_counter() - began
        return (
            Measured(compute_seconds=seconds, bytes_per_second=rate, latency_seconds=latency)
            if rate
            else None
        )

    @torch.no_grad()
    def _decide(self, step: int) -> None:
        if self._asked is None:
            return
        asked, self._asked = self._asked, None
        measured = self.context.lane.finish(asked)
        if measured is None:
            return  # nothing was communicated since the last look; decide at the next
        workers = self.context.transport.workers
        choice = best(measured, workers, self._parameters)
        now = predicted(self.sync, measured, workers, self._parameters)
        first = step == FIRST_LOOK + ANSWER_STEPS
        if first or choice.cost * WORTH < now.cost:
            self._change(step, choice, measured)

    def _own_seconds(self, step: int) -> float:
        """Return the computation time of a step. A mode that communicates during backward takes
        processor time from it, and other modes would not; in such a mode, return the last
        figure."""
        if self._compute_seconds is None or self._mode.replicas_differ:
            self._compute_seconds = _median(self._compute[WARM_UP if step == FIRST_LOOK else 0 :])
        return self._compute_seconds

    def _mean(self, figures: list[float]) -> list[float]:
        """Return the mean over the workers."""
        transport = self.context.transport
        mine = torch.tensor(figures, dtype=torch.float64, device=transport.device)
        mean: list[float] = transport.average(mine).tolist()
        return mean

    def _change(self, step: int, choice: Choice, measured: Measured) -> None:
        if choice.sync == self.sync:
            return
        self._mode.conclude()  # all replicas begin with one model
        if self._mode.replicas_differ and not choice.sync.replicas_differ:
            self._average_optimizer()
        self._become(choice.sync)
        plain = predicted(
            default_sync(), measured, self.context.transport.workers, self._parameters
        )
        self.context.report(
            step,
            choice.sync,
            f"a step computes for {1e3 * measured.compute_seconds:.3g} ms, and the link carries"
            f" {8e-6 * measured.bytes_per_second:.3g} Mbit/s with a latency of"
            f" {1e3 * measured.latency_seconds:.2g} ms: predicted"
            f" {1e3 * choice.step_seconds:.3g} ms/step with {choice.extra:.2f} × the samples;"
            f" all-reduce {1e3 * plain.step_seconds:.3g} ms/step",
        )

    def _average_optimizer(self) -> None:
        """Average the optimizer state over all replicas, because they now take the same steps."""
        states = [
            local_tensor(value)
            for each in self.context.parameters
            for value in self.context.optimizer.state.get(each.parameter, {}).values()
            if isinstance(value, torch.Tensor) and value.ndim and value.is_floating_point()
        ]
        lane, average = self.context.lane, self.context.transport.average
        for state in states:
            lane.finish(lane.begin(functools.partial(average, state)))


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def auto_hook(settings: SyncMode, context: HookContext) -> Hook:
    """Return the hook that measures, chooses and trains; one replica has nothing to choose."""
    return (
        EngineHook(settings, context)
        if context.transport.workers == 1
        else AutoHook(settings, context)
    )
