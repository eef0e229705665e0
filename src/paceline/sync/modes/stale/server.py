"""A parameter server: a part of the weights that one worker serves in addition to its training.

An optimizer of the user's class, with the user's parameter groups, updates the part as gradients
arrive. A thread for each of the other workers receives its gradient, waits while the worker is too
far ahead, and answers with the weights; it also detects the loss of the worker. The server's own
worker passes its gradient in memory.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from paceline.comm.dtensor import local_tensor
from paceline.sync.buckets import Bucket
from paceline.sync.modes.stale.server_messages import (
    ANSWER,
    GOODBYE,
    PUSH,
    Push,
    answer,
    room_for_answer,
)
from paceline.sync.transport import Transport

_RECORDED_ARRIVALS = 10_000


@dataclass(frozen=True)
class Arrival:
    """A gradient that arrived at a part."""

    worker: int
    step: int
    version: int
    """The part's version (number of updates) that the gradient was computed with."""


class Part:
    """Weights that the gradients of all workers update; thread-safe."""

    def __init__(
        self,
        bucket: Bucket,
        optimizer: torch.optim.Optimizer,
        *,
        workers: int,
        staleness: int | None,
        steps_taken: int,
    ) -> None:
        self.bucket = bucket
        self.arrivals: deque[Arrival] = deque(maxlen=_RECORDED_ARRIVALS)
        """The last gradients, in the order of their arrival."""
        self._parameters = [torch.nn.Parameter(each.cpu().clone()) for each in bucket.locals]
        originals = [each.parameter for each in bucket.parameters]
        self._optimizer, self._groups = _optimizer_like(optimizer, originals, self._parameters)
        self._workers, self._staleness = workers, staleness
        self._taken = [steps_taken] * workers
        """Steps taken, by worker."""
        self._version = 0
        self._given = [0] * workers
        """The last version sent to each worker."""
        self._round: dict[int, torch.Tensor] = {}
        """With a staleness of 0: the gradients of this step so far, by worker."""
        self._failure: Exception | None = None
        self._moved = threading.Condition()

    def push(self, worker: int, push: Push) -> None:
        """Take a worker's gradient: apply it at once or, with a staleness of 0, as one mean with
        the others' gradients."""
        with self._moved:
            self.arrivals.append(Arrival(worker, push.step, self._given[worker]))
            self._taken[worker] = push.step
            if self._staleness != 0:
                # All workers together move the weights as far as their mean gradient would.
                self._apply(push.gradient, push.settings, rate=1 / self._workers)
            else:
                self._round[worker] = push.gradient
                if len(self._round) == self._workers:
                    # In the order of the workers, so the sum is the same in any order of arrival.
                    mean = self._round[0].clone()
                    for other in range(1, self._workers):
                        mean += self._round[other]
                    self._apply(mean.div_(self._workers), push.settings, rate=1.0)
                    self._round.clear()
            self._moved.notify_all()

    def pull(self, worker: int) -> torch.Tensor:
        """Return an answer with the weights, once the worker is within the staleness bound."""
        with self._moved:
            slack = self._taken[worker] if self._staleness is None else self._staleness
            self._wait_until_all_have_taken(self._taken[worker] - slack)
            self._given[worker] = self._version
            return answer(self._parameters)

    def weights_after(self, step: int) -> torch.Tensor:
        """Return the weights as one bucket, once all workers have taken a step."""
        with self._moved:
            self._wait_until_all_have_taken(step)
            return self.bucket.flat(self._parameters)

    def state_after(self, step: int) -> list[dict[str, Any]]:
        """Return the optimizer state of each parameter, once all workers have taken a step."""
        with self._moved:
            self._wait_until_all_have_taken(step)
            return [dict(self._optimizer.state.get(each, {})) for each in self._parameters]

    def fail(self, error: Exception) -> None:
        """Record a failure, such as a lost worker, and end all waits."""
        with self._moved:
            self._failure = self._failure or error
            self._moved.notify_all()

    def _wait_until_all_have_taken(self, step: int) -> None:
        self._moved.wait_for(lambda: self._failure is not None or min(self._taken) >= step)
        if self._failure is not None:
            raise self._failure

    def _apply(self, gradient: torch.Tensor, settings: Sequence[float], *, rate: float) -> None:
        for parameter, part in zip(self._parameters, self.bucket.views(gradient), strict=True):
            parameter.grad = part.to(parameter.dtype)
        _take_over(self._groups, settings)
        if rate != 1.0:
            for group in self._optimizer.param_groups:
                group["lr"] = group["lr"] * rate
        self._optimizer.step()
        self._version += 1


class Server:
    """Serves a part to the other workers, until each of them has signed off."""

    def __init__(self, part: Part, transport: Transport, settings: Sequence[float]) -> None:
        self.part = part
        self._transport = transport
        self._like = part.bucket.weights().cpu()
        message = Push(GOODBYE, settings, self._like).packed()
        # Daemons, because after an error no worker signs off.
        self._threads = [
            threading.Thread(
                target=self._serve,
                args=(worker, torch.empty_like(message)),
                name=f"paceline-serve-{worker}",
                daemon=True,
            )
            for worker in range(transport.workers)
            if worker != transport.rank
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until all workers have signed off."""
        for thread in self._threads:
            thread.join()

    def _serve(self, worker: int, message: torch.Tensor) -> None:
        try:
            while True:
                self._transport.listen(worker, message, tag=PUSH)
                push = Push.unpacked(message, self._like)
                if push.step == GOODBYE:
                    return
                self.part.push(worker, push)
                self._transport.swap({worker: self.part.pull(worker)}, {}, sent_tag=ANSWER)
        except Exception as error:
            self.part.fail(error)
            with suppress(Exception):  # unless this is the lost worker
                unanswered = room_for_answer(self._like)
                self._transport.swap({worker: unanswered}, {}, sent_tag=ANSWER)


def settings_of(optimizer: torch.optim.Optimizer) -> list[float]:
    """Return the numbers in all parameter groups, which a schedule may change in every step."""
    return [
        number
        for group in optimizer.param_groups
        for key in _settings(group)
        for number in _numbers(group[key])
    ]


def _take_over(groups: Sequence[dict[str, Any]], settings: Sequence[float]) -> None:
    left = iter(settings)
    for group in groups:
        for key in _settings(group):
            group[key] = _replaced(group[key], left)


def _settings(group: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in group if key != "params")


def _numbers(value: Any) -> list[float]:
    if isinstance(value, tuple | list):
        return [number for each in value for number in _numbers(each)]
    if isinstance(value, torch.Tensor):
        return [float(value)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _replaced(value: Any, numbers: Iterator[float]) -> Any:
    """Return a setting of the same type with the next numbers in it."""
    if isinstance(value, tuple | list):
        return type(value)(_replaced(each, numbers) for each in value)
    if isinstance(value, torch.Tensor):
        return torch.tensor(next(numbers), dtype=value.dtype)
    return type(value)(next(numbers)) if _numbers(value) else value


def _optimizer_like(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    copies: Sequence[torch.nn.Parameter],
) -> tuple[torch.optim.Optimizer, list[dict[str, Any]]]:
    """Return a copy of an optimizer, with its settings and state, for copies of some of its
    parameters; and all parameter groups, including the empty ones that the copy leaves out."""
    copy_of = dict(zip(parameters, copies, strict=True))
    like: Any = object.__new__(type(optimizer))
    # Classes keep other attributes besides groups and state; a schedule has wrapped `step`.
    apart = ("step", "param_groups", "state")
    vars(like).update({key: own for key, own in vars(optimizer).items() if key not in apart})
    groups = [
        {**group, "params": [copy_of[each] for each in group["params"] if each in copy_of]}
        for group in optimizer.param_groups
    ]
    for group in groups:
        if "capturable" in group:  # for graphs on an accelerator; this part is in host memory
            group["capturable"] = False
    like.param_groups = [group for group in groups if group["params"]]
    like.state = defaultdict(dict)
    for original, copied in copy_of.items():
        for key, value in optimizer.state.get(original, {}).items():
            like.state[copied][key] = _own_copy(value)
    return like, groups


def _own_copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return local_tensor(value).detach().cpu().clone()
