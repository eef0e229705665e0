"""The way to agree that is predicted to reach a loss soonest, found under way.

The first steps are steps of one's own, which show what a step takes; the exchange after them shows
what the link carries. Then the choice is made (`choosing.py`), and looked at again every so many
steps: when the link has become faster or slower, another way may be better. All workers decide at
the same steps on the same figures, the mean over all of what each has measured. These are exchanged
while training goes on, after what is under way, so that a look costs next to nothing.
"""

import functools
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import torch

from paceline.comm.dtensor import local_tensor
from paceline.specs import Sync
from paceline.sync.allreduce import MeanGradients
from paceline.sync.choosing import WORTH, Choice, Measured, best, predicted
from paceline.sync.local import LocalSteps
from paceline.sync.mode import Bound, Kept, Mode

FIRST = Sync(mode="local", every=4)
"""Before anything is known."""
FIRST_LOOK = 8
WARM_UP = 3
"""Steps before it that take longer than others."""
SECOND_LOOK = 16
"""What came after the first look shows whether it saw rightly."""
LOOK_EVERY = 64
ANSWER_STEPS = 4
"""From a look to the decision."""


class Auto(Mode):
    """A mode that becomes another one."""

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound)
        self._mode = self._led_by(FIRST)
        self._parameters = sum(each.local.numel() for each in bound.learning)
        self._compute_seconds: float | None = None
        """Of a step that nothing disturbs."""
        self._asked: Future[Measured | None] | None = None
        """What the workers are being asked for."""
        self._compute: list[float] = []
        self._sent, self._calls, self._busy = 0, 0, 0.0
        """What had been exchanged at the last look."""

    @property
    def sync(self) -> Sync:
        """How workers agree at present."""
        return self._mode.bound.sync

    @property
    def replicas_differ(self) -> bool:  # type: ignore[override]
        """Whether weights differ between the replicas at present."""
        return self._mode.replicas_differ

    def last_backward(self) -> Any:
        """A block with the backward after which the gradients of a step are complete."""
        return self._mode.last_backward()

    def before_forward(self, step: int) -> None:
        """The step begins."""
        self._began = time.perf_counter()
        self._waited = self.bound.lane.waited_seconds
        self._mode.before_forward(step)

    def after_backward(self, step: int) -> None:
        """This worker's gradients are complete."""
        self._mode.after_backward(step)

    def before_step(self, step: int) -> bool:
        """Whether the worker is to update its weights itself."""
        return self._mode.before_step(step)

    def after_step(self, step: int) -> None:
        """Look at what the steps took, where it is time to."""
        self._mode.after_step(step)
        waited = self.bound.lane.waited_seconds - self._waited
        self._compute.append(time.perf_counter() - self._began - waited)
        looks = step in (FIRST_LOOK, SECOND_LOOK) or step % LOOK_EVERY == 0
        if looks and self.bound.transport.workers > 1:
            own = self._own_seconds(step)
            self._asked = self.bound.lane.begin(functools.partial(self._look, own))
            self._compute = []
        elif step - ANSWER_STEPS in (FIRST_LOOK, SECOND_LOOK) or step % LOOK_EVERY == ANSWER_STEPS:
            self._decide(step)

    def consensus(self) -> list[torch.Tensor] | None:
        """What the replicas have in common."""
        return self._mode.consensus()

    def conclude(self) -> None:
        """Come to one model on all workers."""
        self._mode.conclude()

    def drain(self) -> None:
        """Wait until nothing of this worker is on its way."""
        self._mode.drain()

    def kept(self) -> Iterator[Kept]:
        """What the mode of the moment keeps."""
        return self._mode.kept()

    def numbers(self) -> dict[str, Any]:
        """Which mode that is, and its numbers."""
        return {"chosen": self.sync.model_dump(), **self._mode.numbers()}

    def resuming(self, numbers: Mapping[str, Any]) -> None:
        """Be the mode that the checkpoint was written in."""
        if "chosen" in numbers:
            self._become(Sync(**numbers["chosen"]))

    def restored(self, numbers: Mapping[str, Any], *, same_replicas: bool) -> None:
        """Go on."""
        self._mode.restored(numbers, same_replicas=same_replicas)

    def close(self) -> None:
        """Let go of what is left."""
        self._mode.close()

    def _led_by(self, sync: Sync) -> Mode:
        bound = replace(self.bound, sync=sync)
        return MeanGradients(bound) if sync.mode == "allreduce" else LocalSteps(bound)

    def _become(self, sync: Sync) -> None:
        self._mode.close()
        self._mode = self._led_by(sync)

    def _look(self, own_seconds: float) -> Measured | None:
        """What all workers have measured, on average; None where nothing was exchanged since the
        last look. In the thread that exchanges, so that nothing else is under way meanwhile."""
        lane, transport = self.bound.lane, self.bound.transport
        began = time.perf_counter()
        sent, busy = transport.sent_bytes - self._sent, lane.busy_seconds - self._busy
        calls = transport.calls - self._calls
        # The first of two with next to nothing in them waits until the others have come, too.
        self._mean([0.0])
        before = time.perf_counter()
        self._mean([0.0])
        latency = time.perf_counter() - before
        carrying = max(busy - calls * latency, 0.1 * busy)
        seconds, rate, latency = self._mean(
            [own_seconds, sent / carrying if sent else 0.0, latency]
        )
        self._sent, self._calls = transport.sent_bytes, transport.calls
        # The time of this look will be added to it.
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
        measured = self.bound.lane.finish(asked)
        if measured is None:
            return  # nothing has been exchanged since the last look: it comes with the next
        workers = self.bound.transport.workers
        choice = best(measured, workers, self._parameters)
        now = predicted(self.sync, measured, workers, self._parameters)
        first = step == FIRST_LOOK + ANSWER_STEPS
        if first or choice.cost * WORTH < now.cost:
            self._change(step, choice, measured)

    def _own_seconds(self, step: int) -> float:
        """What a step computes. An exchange of every gradient takes processor time from backward,
        which other ways would not: in these the last figure stands."""
        if self._compute_seconds is None or self._mode.replicas_differ:
            self._compute_seconds = _median(self._compute[WARM_UP if step == FIRST_LOOK else 0 :])
        return self._compute_seconds

    def _mean(self, figures: list[float]) -> list[float]:
        """Over the workers."""
        transport = self.bound.transport
        mine = torch.tensor(figures, dtype=torch.float64, device=transport.device)
        mean: list[float] = transport.average(mine).tolist()
        return mean

    def _change(self, step: int, choice: Choice, measured: Measured) -> None:
        if choice.sync == self.sync:
            return
        self._mode.conclude()  # all begin with one model
        if self._mode.replicas_differ and choice.sync.mode == "allreduce":
            self._average_optimizer()
        self._become(choice.sync)
        plain = predicted(Sync(), measured, self.bound.transport.workers, self._parameters)
        self.bound.tell(
            step,
            choice.sync,
            f"a step computes for {1e3 * measured.compute_seconds:.3g} ms and the link carries"
            f" {8e-6 * measured.bytes_per_second:.3g} Mbit/s after"
            f" {1e3 * measured.latency_seconds:.2g} ms: predicted"
            f" {1e3 * choice.step_seconds:.3g} ms a step with"
            f" {choice.extra:.2f} times the samples, all-reduce {1e3 * plain.step_seconds:.3g} ms",
        )

    def _average_optimizer(self) -> None:
        """One state for all, since from now on all take the same steps."""
        states = [
            local_tensor(value)
            for each in self.bound.held
            for value in self.bound.optimizer.state.get(each.parameter, {}).values()
            if isinstance(value, torch.Tensor) and value.ndim and value.is_floating_point()
        ]
        lane, average = self.bound.lane, self.bound.transport.average
        for state in states:
            lane.finish(lane.begin(functools.partial(average, state)))


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
