"""Operators whose FLOPs are not counted, such as an LSTM: their names, and their measured time."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from paceline.comm.device_kind import device_kind
from paceline.comm.torch_internals import TorchDispatchMode
from paceline.profile.counting import Forward
from paceline.profile.matmuls import is_uncounted
from paceline.profile.regions import Regions
from paceline.specs.measurements.profile import ModelTimes

_REPEATS = 3
_MATRIX = 1024
"""Rows and columns of the product that measures the device's rate."""


def uncounted_times(
    model: nn.Module,
    forward: Forward,
    *,
    device: torch.device,
    sizes: Sequence[int],
    budget_seconds: float,
) -> ModelTimes:
    """Time the uncounted operators of a model on a device, in forward and backward.

    Sizes that would exceed the budget are left out.
    """
    over = time.perf_counter() + budget_seconds
    rows: list[tuple[int, tuple[float, ...]]] = []
    for samples in sizes:
        begin = time.perf_counter()
        work = forward(samples)
        seconds = [_once(model, *work, device) for _ in range(_REPEATS + 1)][1:]  # one to warm up
        rows.append(
            (samples, tuple(statistics.median(each) for each in zip(*seconds, strict=True)))
        )
        now = time.perf_counter()
        if now + 2 * (now - begin) > over:
            break
    return ModelTimes(
        samples=tuple(samples for samples, _ in rows),
        parts=tuple(parts for _, parts in rows),
        optimizer_seconds=0.0,
    )


def matmul_rate(device: torch.device, precision: torch.dtype) -> float:
    """Return the FLOP/s of a matrix product on this machine's device."""
    left = torch.ones(_MATRIX, _MATRIX, device=device, dtype=precision)
    torch.mm(left, left)
    seconds = []
    for _ in range(_REPEATS):
        begin = _now(device)
        torch.mm(left, left)
        seconds.append(_now(device) - begin)
    return 2.0 * _MATRIX**3 / statistics.median(seconds)


def _once(
    model: nn.Module,
    forward: Callable[[], Any],
    loss: Callable[[Any], torch.Tensor],
    device: torch.device,
) -> list[float]:
    """Return the seconds in forward before, in and after the blocks; then those of backward,
    reversed."""
    regions = Regions(model)
    clock = _Clock(regions, device)
    with regions.followed(), clock:
        output = forward()
        regions.now = regions.last
        value = loss(output)
        ahead = dict(clock.seconds)
        clock.seconds.clear()
        value.backward()  # type: ignore[no-untyped-call]
    inside = sum(ahead.get(number, 0.0) for number in range(1, regions.last))
    parts = [ahead.get(0, 0.0), inside, ahead.get(regions.last, 0.0)]
    # Hooks do not follow backward: each region has the fraction of it that it had of forward.
    behind = sum(clock.seconds.values()) / (sum(parts) or 1.0)
    model.zero_grad()
    return [*parts, *(behind * each for each in reversed(parts))]


class _Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the seconds of uncounted operators, by region."""

    supports_higher_order_operators = True

    def __init__(self, regions: Regions, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds: Counter[int] = Counter()
        self._regions, self._device = regions, device

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and time it if it is not counted."""
        if not is_uncounted(function):
            return function(*args, **(kwargs or {}))
        begin = _now(self._device)
        result = function(*args, **(kwargs or {}))
        self.seconds[self._regions.now] += _now(self._device) - begin  # type: ignore[assignment]
        return result


def _now(device: torch.device) -> float:
    if device.type != "cpu":
        device_kind().synchronize(device)
    return time.perf_counter()
