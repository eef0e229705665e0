"""The step breakdown of a worker: every moment belongs to one part of a step."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from paceline.specs import PARTS, Part


class Clock:
    """Step breakdown of a worker that computes synchronously, on a CPU."""

    def __init__(self) -> None:
        self._part: Part = "other"
        self._since = time.perf_counter()
        self._seconds: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._taken = dict(self._seconds)

    def turn(self, part: Part) -> None:
        """Attribute the time from now on to this part."""
        now = time.perf_counter()
        self._seconds[self._part] += now - self._since
        self._part, self._since = part, now

    def during(self, part: Part) -> AbstractContextManager[None]:
        """Attribute the block's time to a part, and return to the previous part afterwards."""
        return _During(self, part)

    @property
    def part(self) -> Part:
        """The current part."""
        return self._part

    def waited(self, seconds: float) -> None:
        """Count seconds of the current part as communication instead."""
        self._seconds[self._part] -= seconds
        self._seconds["communication"] += seconds

    def total(self) -> dict[Part, float]:
        """Return the seconds of each part so far."""
        self.turn(self._part)
        return dict(self._seconds)

    def take(self) -> dict[Part, float]:
        """Return the seconds of each part since the last call."""
        before, self._taken = self._taken, self.total()
        return {part: seconds - before[part] for part, seconds in self._taken.items()}


class _During(AbstractContextManager[None]):
    """A class, because a generator costs a step several microseconds."""

    __slots__ = ("_before", "_clock", "_part")

    def __init__(self, clock: Clock, part: Part) -> None:
        self._clock, self._part, self._before = clock, part, part

    def __enter__(self) -> None:
        self._before = self._clock.part
        self._clock.turn(self._part)

    def __exit__(self, *error: object) -> None:
        self._clock.turn(self._before)


class DeviceClock(Clock):
    """Step breakdown of a worker whose accelerator runs asynchronously.

    It records events in the device's queue and reads them once the device has passed them, so
    nothing waits for the device. Work that the queue overlaps, such as loading a batch while the
    device still computes, does not appear in the step.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._marks: list[tuple[Part, torch.Event]] = []
        self.turn("other")

    def turn(self, part: Part) -> None:
        """Attribute the time from this point of the device's queue on to this part."""
        mark = torch.Event(self._device, enable_timing=True)
        mark.record()
        self._marks.append((part, mark))
        self._part = part

    def waited(self, seconds: float) -> None:
        """Do nothing: the device may compute while the host waits."""

    def total(self) -> dict[Part, float]:
        """Return the seconds of each part up to the last event that the device has passed."""
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
    """Return the clock for a device."""
    return Clock() if device.type == "cpu" else DeviceClock(device)


class LastGradient:
    """Calls back when a backward has computed its last gradient: the rest of it is waiting.

    The first backward watches every parameter; later ones watch only the parameter that was last.
    If the order changes later, the breakdown is less exact, at no cost.
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
        """Keep only the hook of the last parameter; call this after a backward."""
        if self._latest is None or len(self._hooks) <= 1:
            return
        for parameter, hook in self._hooks.items():
            if parameter is not self._latest:
                hook.remove()
        self._hooks = {self._latest: self._hooks[self._latest]}

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()

    def _note(self, parameter: torch.Tensor) -> None:
        self._latest = parameter
        self._arrived()
