"""Measured times of a model's regions on one device, for micro-batches of several sizes."""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import nn

from paceline.comm.torch_internals import tree_leaves
from paceline.profile.counting import Forward
from paceline.profile.regions import Regions
from paceline.specs.measurements.profile import (
    LayerCost,
    ModelTimes,
    Profile,
    Timing,
    UncountedScale,
)

_LEAST_REPEATS, _MOST_REPEATS = 3, 15


class _Mark(Protocol):
    """A timestamp on a device."""

    def elapsed_time(self, later: Any) -> float:
        """Return the milliseconds until a later timestamp."""


class _CpuMark:
    def __init__(self) -> None:
        self.seconds = time.perf_counter()

    def elapsed_time(self, later: "_CpuMark") -> float:
        return 1e3 * (later.seconds - self.seconds)


def model_times(
    model: nn.Module,
    forward: Forward,
    step: Callable[[], None],
    *,
    device: torch.device,
    sizes: Sequence[int],
    budget_seconds: float,
) -> ModelTimes:
    """Time the regions of a model and the optimizer's `step` on a device.

    The sizes share the remaining time budget. If the previous size shows that the next one would
    exceed it, that size and all larger ones are left out.
    """
    regions = Regions(model)
    over = time.perf_counter() + budget_seconds
    rows: list[tuple[int, list[float]]] = []
    steps: list[float] = []
    for number, samples in enumerate(sizes):
        begin = time.perf_counter()
        if rows and begin + (_LEAST_REPEATS + 1) * 2 * sum(rows[-1][1]) > over:
            break
        enough = begin + (over - begin) / (len(sizes) - number)
        found: list[list[float]] = []
        work = forward(samples)
        _once(regions, work, step, device)  # warm-up
        while len(found) < _LEAST_REPEATS or (
            time.perf_counter() < enough and len(found) < _MOST_REPEATS
        ):
            *parts, optimizer = _once(regions, work, step, device)
            found.append(parts)
            steps.append(optimizer)
        rows.append((samples, [statistics.median(column) for column in zip(*found, strict=True)]))
    return ModelTimes(
        samples=tuple(samples for samples, _ in rows),
        parts=tuple(tuple(parts) for _, parts in rows),
        optimizer_seconds=statistics.median(steps),
    )


def merged(times: Sequence[ModelTimes]) -> ModelTimes:
    """Return the medians over several devices, at the sizes that all of them reached."""
    common = min((each.samples for each in times), key=len)
    return ModelTimes(
        samples=common,
        parts=tuple(
            tuple(statistics.median(column) for column in zip(*at_size, strict=True))
            for at_size in zip(*(each.parts[: len(common)] for each in times), strict=True)
        ),
        optimizer_seconds=statistics.median(each.optimizer_seconds for each in times),
    )


def with_times(profile: Profile, times: ModelTimes, device_name: str) -> Profile:
    """Return the profile with the measured times of its layers."""
    layers = {
        name: _timed(layer, times, at, layer.count)
        for at, (name, layer) in enumerate(
            zip(("before", "block", "after"), profile.layers, strict=True)
        )
    }
    measured = {"measured_on": device_name, "optimizer_seconds": times.optimizer_seconds}
    return profile.model_copy(update={**layers, **measured})


def with_uncounted(
    profile: Profile,
    times: ModelTimes,
    device_name: str,
    scale: float,
    scaled_by: UncountedScale,
) -> Profile:
    """Return the profile with the times of uncounted operators, multiplied by `scale`."""
    layers = {
        name: layer.model_copy(update={"uncounted": _timing(times, at, layer.count / scale)})
        for at, (name, layer) in enumerate(
            zip(("before", "block", "after"), profile.layers, strict=True)
        )
    }
    on = {"uncounted_on": device_name, "uncounted_scale": scale, "uncounted_scaled_by": scaled_by}
    return profile.model_copy(update={**layers, **on})


def _timed(layer: LayerCost, times: ModelTimes, at: int, blocks: int) -> LayerCost:
    return layer.model_copy(update={"timing": _timing(times, at, blocks)})


def _timing(times: ModelTimes, at: int, divisor: float) -> Timing:
    return Timing(
        samples=times.samples,
        forward_seconds=tuple(parts[at] / divisor for parts in times.parts),
        backward_seconds=tuple(parts[5 - at] / divisor for parts in times.parts),
    )


def _once(
    regions: Regions,
    work: tuple[Callable[[], Any], Callable[[Any], torch.Tensor]],
    step: Callable[[], None],
    device: torch.device,
) -> list[float]:
    """Return the seconds of forward (before, blocks, after), of backward (reversed), and of the
    step."""
    marks: dict[str, _Mark] = {}
    forward, loss = work

    def mark(name: str) -> None:
        if device.type == "cpu":
            marks[name] = _CpuMark()
        else:
            marks[name] = event = torch.Event(device, enable_timing=True)
            event.record()

    def entered(number: int, inputs: Any) -> None:
        if number == 1:
            mark("blocks")
            _when_gradient_arrives(inputs, lambda: mark("before, backward"))

    def left(number: int, outputs: Any) -> None:
        if number == regions.last - 1:
            mark("after")
            _when_gradient_arrives(outputs, lambda: mark("blocks, backward"))

    regions.now = 0
    mark("begin")
    with regions.followed(entered, left):
        value = loss(forward())
    mark("backward")
    value.backward()  # type: ignore[no-untyped-call]
    mark("step")
    step()
    mark("end")
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    # If the first block takes the samples themselves, there is nothing before it.
    marks.setdefault("before, backward", marks["step"])
    marks.setdefault("blocks, backward", marks["backward"])
    order = (
        "begin",
        "blocks",
        "after",
        "backward",
        "blocks, backward",
        "before, backward",
        "step",
        "end",
    )
    return [
        max(0.0, marks[one].elapsed_time(marks[next_one]) / 1e3)
        for one, next_one in pairwise(order)
    ]


def _when_gradient_arrives(values: Any, then: Callable[[], None]) -> None:
    """Call `then` when backward reaches the first tensor that has a gradient."""
    for each in tree_leaves(values):
        if isinstance(each, torch.Tensor) and each.requires_grad:
            each.register_hook(lambda gradient: then())  # type: ignore[no-untyped-call]
            return
