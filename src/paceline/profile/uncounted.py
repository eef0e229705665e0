"""Operators whose FLOPs are not counted, such as an LSTM: their names, and their measured time."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paceline.comm.device_kind import device_kind
from paceline.comm.torch_internals import TorchDispatchMode, tree_leaves
from paceline.profile.counting import Forward
from paceline.profile.matmuls import is_uncounted
from paceline.profile.regions import Regions
from paceline.specs.measurements.profile import ModelTimes

_REPEATS = 3
_MATRIX = 1024
"""Rows and columns of the product that measures the device's rate."""
_COPY_BYTES = 1 << 26
"""Bytes of the copy that measures its memory."""


@dataclass(frozen=True)
class UncountedTimes:
    """Times of uncounted operators, and what limits them."""

    times: ModelTimes
    bytes_per_second: float
    """Bytes of their arguments and results, over their time, with the largest micro-batch."""


@dataclass(frozen=True)
class DeviceRates:
    """What a device reaches."""

    matmul_flops: float
    """FLOP/s of a matrix product."""
    memory_bytes_per_second: float
    """Read and written by a copy."""


def uncounted_times(
    model: nn.Module,
    forward: Forward,
    *,
    device: torch.device,
    sizes: Sequence[int],
    budget_seconds: float,
) -> UncountedTimes:
    """Time the uncounted operators of a model on a device, in forward and backward.

    Sizes that would exceed the budget are left out.
    """
    over = time.perf_counter() + budget_seconds
    rows: list[tuple[int, tuple[float, ...]]] = []
    moved_rate = 0.0
    for samples in sizes:
        begin = time.perf_counter()
        work = forward(samples)
        runs = [_once(model, *work, device) for _ in range(_REPEATS + 1)][1:]  # one to warm up
        seconds = [each for each, _ in runs]
        moved_rate = statistics.median(rate for _, rate in runs)
        rows.append(
            (samples, tuple(statistics.median(each) for each in zip(*seconds, strict=True)))
        )
        now = time.perf_counter()
        if now + 2 * (now - begin) > over:
            break
    times = ModelTimes(
        samples=tuple(samples for samples, _ in rows),
        parts=tuple(parts for _, parts in rows),
        optimizer_seconds=0.0,
    )
    return UncountedTimes(times, moved_rate)


def device_rates(device: torch.device, precision: torch.dtype) -> DeviceRates:
    """Measure this machine's device."""
    left = torch.ones(_MATRIX, _MATRIX, device=device, dtype=precision)
    source = torch.ones(_COPY_BYTES, dtype=torch.uint8, device=device)
    target = source.clone()
    torch.mm(left, left)
    product = _median_seconds(lambda: torch.mm(left, left), device)
    copy = _median_seconds(lambda: target.copy_(source), device)
    return DeviceRates(2.0 * _MATRIX**3 / product, 2.0 * _COPY_BYTES / copy)


def _median_seconds(call: Callable[[], object], device: torch.device) -> float:
    seconds = []
    for _ in range(_REPEATS):
        begin = _now(device)
        call()
        seconds.append(_now(device) - begin)
    return statistics.median(seconds)


def _once(
    model: nn.Module,
    forward: Callable[[], Any],
    loss: Callable[[Any], torch.Tensor],
    device: torch.device,
) -> tuple[list[float], float]:
    """Return the seconds in forward before, in and after the blocks, then those of backward,
    reversed; and the bytes per second of forward."""
    regions = Regions(model)
    clock = _Clock(regions, device)
    with regions.followed(), clock:
        output = forward()
        regions.now = regions.last
        value = loss(output)
        ahead = dict(clock.seconds)
        clock.counts_bytes = False
        clock.seconds.clear()
        value.backward()  # type: ignore[no-untyped-call]
    inside = sum(ahead.get(number, 0.0) for number in range(1, regions.last))
    parts = [ahead.get(0, 0.0), inside, ahead.get(regions.last, 0.0)]
    # Hooks do not follow backward: each region has the fraction of it that it had of forward.
    behind = sum(clock.seconds.values()) / (sum(parts) or 1.0)
    model.zero_grad()
    rate = clock.moved_bytes / (sum(parts) or 1.0)
    return [*parts, *(behind * each for each in reversed(parts))], rate


class _Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the seconds of uncounted operators, by region."""

    supports_higher_order_operators = True

    def __init__(self, regions: Regions, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds: Counter[int] = Counter()
        self.moved_bytes, self.counts_bytes = 0, True
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
        if self.counts_bytes:
            tensors = tree_leaves((args, kwargs, result))
            self.moved_bytes += sum(
                each.nbytes for each in tensors if isinstance(each, torch.Tensor)
            )
        return result


def _now(device: torch.device) -> float:
    if device.type != "cpu":
        device_kind().synchronize(device)
    return time.perf_counter()
