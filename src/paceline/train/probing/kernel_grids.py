"""Measurement of a device's kernels on grids of sizes, within a time budget."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal

import torch

from paceline.comm.device_kind import device_kind
from paceline.specs.measurements.kernels import KernelGrid, KernelVariant, VariantName
from paceline.specs.measurements.profile import TrainingPrecision
from paceline.train.probing.device_clock import WINDOW_SECONDS, WINDOWS, DeviceClock
from paceline.train.probing.kernel_calls import Calls, attention_calls, linear_calls

Sizes = tuple[int, int, int]
Axes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

LINEAR: dict[bool, Axes] = {
    True: ((64, 256, 1024, 4096), (64, 256, 1024, 4096), (64, 256, 1024, 4096)),
    False: (
        (128, 512, 2048, 8192, 32768),
        (256, 1024, 4096, 16384),
        (256, 1024, 4096, 16384),
    ),
}
"""Rows, inner and columns of linear layers at most; the key: on a CPU."""
ATTENTION: dict[bool, Axes] = {
    True: ((4, 16, 64), (64, 256, 1024), (32, 64, 128)),
    False: ((8, 64, 512), (256, 1024, 4096, 16384), (64, 128, 256)),
}
"""Heads of all samples, tokens, and the width of a head, at most."""
LEAST_SIZES = 2
"""Fewest sizes along an axis; with a budget for fewer, a kernel is left out."""
CALLS = WINDOWS + 2
"""Calls of a kernel that is longer than a window: one to warm up, one to count."""
FOR_VARIANTS = 0.15
"""Part of a grid's time for its variants."""
OVERRUN = 1.5
"""Time over the budget at which a grid ends with the sizes so far: the device had other work."""
BACKWARD = 2.5
"""Time of backward relative to forward, at most, for the choice of sizes."""
SCORE_BYTES = 16
"""Memory for each score of attention that is not fused, forward and backward, at most."""
LONG_SECONDS = 0.001
"""Time of a call from which on it shows the device's rate."""
MEMORY_PART = 0.25
"""Part of the device's memory that a kernel may take."""
GROUPED = 4
"""Query heads that share keys and values in the variant `grouped`."""


@dataclass(frozen=True)
class KernelCase:
    """A kernel to measure on a grid."""

    kernel: Literal["linear", "attention"]
    precision: TrainingPrecision
    axes: Axes
    """Sizes to measure, if time and memory allow."""
    causal: bool = False
    fused: bool = True
    weight: float = 1.0
    """Part of the time relative to the other kernels'."""

    def calls(self, sizes: Sizes, device: torch.device, queries_per_key: int = 1) -> Calls:
        """Return the kernel's calls for a size."""
        if self.kernel == "linear":
            return linear_calls(sizes, self.precision, device)
        return attention_calls(
            sizes,
            self.precision,
            device,
            causal=self.causal,
            fused=self.fused,
            queries_per_key=queries_per_key,
        )


def kernel_cases(device: torch.device) -> tuple[KernelCase, ...]:
    """Return the kernels of a device in the precisions that it has."""
    precisions: list[TrainingPrecision] = ["fp32", "bf16"]
    if device.type != "cpu":
        precisions.append("fp16")
    on_cpu = device.type == "cpu"
    linear = partial(KernelCase, "linear", axes=LINEAR[on_cpu], weight=4.0)
    attention = partial(KernelCase, "attention", axes=ATTENTION[on_cpu])
    cases = []
    for each in precisions:
        cases += [
            linear(each),
            attention(each, causal=True),
            attention(each),
            attention(each, fused=False),
        ]
    if device_kind().has_fp8(device):
        cases.append(linear("fp8"))
    return tuple(cases)


def kernel_grids(
    cases: Sequence[KernelCase],
    device: torch.device,
    memory_bytes: int,
    budget_seconds: float,
    advance: Callable[[], None] = lambda: None,
) -> Iterator[KernelGrid]:
    """Measure kernels, and yield a grid for each that the budget allows.

    Each takes its part of the time that is left: what one does not use, the others do.
    """
    clock, over = DeviceClock(device), time.perf_counter() + budget_seconds
    for number, case in enumerate(cases):
        left = over - time.perf_counter()
        own = left * case.weight / sum(each.weight for each in cases[number:])
        found = _Measurement(case, device, clock, memory_bytes * MEMORY_PART).grid(own)
        if found is not None:
            yield found
        advance()


class _Measurement:
    """The measurement of one kernel."""

    def __init__(
        self, case: KernelCase, device: torch.device, clock: DeviceClock, most_bytes: float
    ) -> None:
        self._case, self._device, self._clock = case, device, clock
        self._most_bytes = most_bytes

    def grid(self, budget_seconds: float) -> KernelGrid | None:
        """Return the largest grid that the budget allows; None if it allows none."""
        over = time.perf_counter() + OVERRUN * budget_seconds
        rate = self._rate()
        axes = _shorter(
            self._case.axes,
            lambda each: self._fits(each) and self._expected_seconds(rate, each) <= budget_seconds,
        )
        if axes is None:
            return None
        times: dict[Sizes, tuple[float, float]] = {}
        for sizes in sorted(product(*axes), key=self._flops):
            if time.perf_counter() > over:
                break
            times[sizes] = self._seconds(sizes)
        axes = _shorter(axes, lambda each: all(sizes in times for sizes in product(*each)))
        if axes is None:
            return None
        variants = tuple(self._variants(axes, times))
        return KernelGrid(
            kernel=self._case.kernel,
            precision=self._case.precision,
            causal=self._case.causal,
            fused=self._case.fused,
            axes=axes,
            forward_seconds=tuple(times[sizes][0] for sizes in product(*axes)),
            backward_seconds=tuple(times[sizes][1] for sizes in product(*axes)),
            variants=variants,
        )

    def _variants(
        self, axes: Axes, times: Mapping[Sizes, tuple[float, float]]
    ) -> Iterator[KernelVariant]:
        """Measure each variant at a small and at a large size, relative to the grid's times."""
        names: list[VariantName] = ["eighths", "unaligned"]
        if self._case.precision == "fp8":  # whose products need widths that are multiples of 16
            names = []
        if self._case.kernel == "attention":
            names = ["unaligned", "grouped"] if self._case.fused else ["grouped"]
        corners = sorted({_at(axes, 0.5), _at(axes, 0.99)}, key=self._flops)
        for name in names:
            rows = []
            for sizes in corners:
                forward, backward = self._variant_seconds(name, sizes)
                ahead, behind = times[sizes]
                rows.append((self._flops(sizes), forward / ahead, backward / behind))
            work, ahead_of, behind_of = zip(*rows, strict=True)
            yield KernelVariant(name=name, work=work, forward=ahead_of, backward=behind_of)

    def _variant_seconds(self, name: VariantName, sizes: Sizes) -> tuple[float, float]:
        """Return the times of a variant, per FLOP of the grid's size."""
        if name == "grouped":
            return self._seconds(sizes, queries_per_key=min(GROUPED, sizes[0]))
        less = 8 if name == "eighths" else 1
        changed = (sizes[0], sizes[1], sizes[2] - less)
        if self._case.kernel == "linear":
            changed = (sizes[0], sizes[1] - less, sizes[2] - less)
        by = self._flops(sizes) / self._flops(changed)
        forward, backward = self._seconds(changed)
        return by * forward, by * backward

    def _seconds(self, sizes: Sizes, queries_per_key: int = 1) -> tuple[float, float]:
        calls = self._case.calls(sizes, self._device, queries_per_key)
        backward = sum(self._clock.seconds(each) for each in calls.backward)
        return self._clock.seconds(calls.forward), backward

    def _rate(self) -> float:
        """Return the FLOP/s of the first size that is long enough to show the device's rate, or of
        the last one that fits into its memory; 0 if none does."""
        rate = 0.0
        for place in range(1, max(len(axis) for axis in self._case.axes)):
            one, two, three = (axis[min(place, len(axis) - 1)] for axis in self._case.axes)
            if not self._fits(((one,), (two,), (three,))):
                break
            calls = self._case.calls((one, two, three), self._device)
            seconds = self._clock.seconds(calls.forward)
            rate = calls.flops / seconds
            if seconds > LONG_SECONDS:
                break
        return rate

    def _expected_seconds(self, rate: float, axes: Axes) -> float:
        """Return how long a grid takes at this rate; short calls take their windows."""
        least = (WINDOWS + 1) * WINDOW_SECONDS * (3 if self._case.kernel == "linear" else 2)
        every = (
            max(least, CALLS * (1 + BACKWARD) * self._flops(sizes) / rate)
            for sizes in product(*axes)
        )
        return (1 + FOR_VARIANTS) * sum(every)

    def _flops(self, sizes: Sizes) -> float:
        one, two, three = sizes
        if self._case.kernel == "linear":
            return 2.0 * one * two * three
        return 4.0 * one * two**2 * three

    def _fits(self, axes: Axes) -> bool:
        """Return whether the largest size fits into the device's memory."""
        one, two, three = (axis[-1] for axis in axes)
        if self._case.kernel == "linear":
            return 16.0 * (one * two + two * three + one * three) <= self._most_bytes
        scores = 0.0 if self._case.fused else SCORE_BYTES * float(one) * two**2
        return scores + 40.0 * one * two * three <= self._most_bytes


def _at(axes: Axes, part: float) -> Sizes:
    """Return the size at a part of each axis."""
    one, two, three = (axis[int(part * len(axis))] for axis in axes)
    return one, two, three


def _shorter(axes: Axes, suits: Callable[[Axes], bool]) -> Axes | None:
    """Return the axes without as many of their largest sizes as it takes to suit."""
    while not suits(axes):
        longest = max(range(3), key=lambda place: (len(axes[place]), axes[place][-1]))
        if len(axes[longest]) <= LEAST_SIZES:
            return None
        shorter = [axis[:-1] if place == longest else axis for place, axis in enumerate(axes)]
        axes = (shorter[0], shorter[1], shorter[2])
    return axes
