"""What a worker's time goes to: every moment belongs to one part of a step."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from paceline.specs import PARTS, Part


class Clock:
    """Divides the time of a worker that computes when it is called: on a CPU."""

    def __init__(self) -> None:
        self._part: Part = "other"
        self._since = time.perf_counter()
        self._seconds: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._taken = dict(self._seconds)

    def turn(self, part: Part) -> None:
        """From now on, time goes to this part."""
        now = time.perf_counter()
        self._seconds[self._part] += now - self._since
        self._part, self._since = part, now

    @contextmanager
    def during(self, part: Part) -> Iterator[None]:
        """A block whose time goes to a part; after it, to the one before again."""
        before = self._part
        self.turn(part)
        try:
            yield
        finally:
            self.turn(before)

    @contextmanager
    def apart(self, waited: Callable[[], float]) -> Iterator[None]:
        """A block of which the time by which `waited` grows was spent waiting for others."""
        before = waited()
        yield
        more = waited() - before
        self._seconds[self._part] -= more
        self._seconds["communication"] += more

    def total(self) -> dict[Part, float]:
        """The seconds of each part so far."""
        self.turn(self._part)
        return dict(self._seconds)

    def take(self) -> dict[Part, float]:
        """The seconds of each part since this was last asked for."""
        before, self._taken = self._taken, self.total()
        return {part: seconds - before[part] for part, seconds in self._taken.items()}


class DeviceClock(Clock):
    """Divides the time of a worker whose accelerator computes later than it is told to.

    Marks are put into the device's queue, and read when it has passed them: nothing waits for the
    device. So what its queue hides, such as a batch that arrives while it still computes, is no
    part of a step.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._marks: list[tuple[Part, torch.Event]] = []
        self.turn("other")

    def turn(self, part: Part) -> None:
        """From here in the device's queue on, time goes to this part."""
        mark = torch.Event(self._device, enable_timing=True)
        mark.record()
        self._marks.append((part, mark))
        self._part = part

    @contextmanager
    def apart(self, waited: Callable[[], float]) -> Iterator[None]:
        """What the host waits is no part of the device's time, which may go on meanwhile."""
        del waited
        yield

    def total(self) -> dict[Part, float]:
        """The seconds of each part up to the last mark that the device has passed."""
        self.turn(self._part)
        passed = 0
        for (part, mark), (_, following) in zip(self._marks, self._marks[1:], strict=False):
            if not following.query():
                break
            self._seconds[part] += mark.elapsed_time(following) / 1e3
            passed += 1
        del self._marks[:passed]
        return dict(self._seconds)


def clock_of(device: torch.device) -> Clock:
    """The clock for a device."""
    return Clock() if device.type == "cpu" else DeviceClock(device)


class LastGradient:
    """Says when a backward has computed its last gradient: what follows in it is waiting.

    In the first backward every parameter is watched, then only the one that was the last: an
    order that changes later makes the division less exact, and costs nothing.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._latest: torch.Tensor | None = None
        self._hooks: dict[torch.Tensor, RemovableHandle] = {
            each: each.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]
            for each in parameters
            if each.requires_grad
        }

    def settle(self) -> None:
        """A backward is over."""
        if self._latest is None or len(self._hooks) <= 1:
            return
        for parameter, hook in self._hooks.items():
            if parameter is not self._latest:
                hook.remove()
        self._hooks = {self._latest: self._hooks[self._latest]}

    def close(self) -> None:
        """Watch no longer."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()

    def _note(self, parameter: torch.Tensor) -> None:
        self._latest = parameter
        self._arrived()
