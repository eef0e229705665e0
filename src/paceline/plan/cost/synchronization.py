"""The cost of a synchronization mode other than PyTorch's all-reduce, in seconds and bytes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives import COLLECTIVES, UNPROBED, Array, Group
from paceline.plan.cost.engine import Engine
from paceline.specs.plans.sync import SyncSettings
from paceline.specs.plans.traffic import ReplicatedPart

_SECONDS = {**COLLECTIVES, **UNPROBED, "receive": COLLECTIVES["send"]}


@dataclass(frozen=True)
class Rounds:
    """Rounds of communication, for every layout."""

    seconds: Array
    """Duration of one round."""
    per_step: float
    overlapped_steps: int
    """Steps that a round may overlap."""


def rounds(
    engine: Engine,
    replicas: Array,
    parameters: Array,
    group: Group,
    memory_rate: Array,
    launch_seconds: Array,
) -> Rounds:
    """Return the rounds between `replicas` workers with `parameters` each, placed as `group`."""
    # Few layouts differ in these two.
    key, place = np.unique(replicas + 1j * np.round(parameters), return_inverse=True)
    bucket_bytes = engine.bucket_bytes or int(engine.gradient_bytes * np.max(parameters))
    cases = [
        engine.sync.traffic(ReplicatedPart(int(each.real), int(each.imag), bucket_bytes))
        for each in key
    ]
    copied, launches, crossing = (
        np.array([getattr(each, name) for each in cases])[place]
        for name in ("device_bytes", "launches", "crossing")
    )
    computing = np.maximum(copied / memory_rate, launches * launch_seconds)
    seconds = np.where(replicas > 1, computing, 0.0)
    # A mode makes the same calls on any number of workers.
    for calls in zip(*(each.transfers for each in cases), strict=True):
        count = np.array([float(each.count) for each in calls])[place]
        nbytes = np.array([float(each.bytes) for each in calls])[place]
        seconds = seconds + crossing * count * _SECONDS[calls[0].operation](nbytes, group)
    return Rounds(seconds, cases[0].per_step, cases[0].overlapped_steps)


def exposed(of: Rounds, step_seconds: Array) -> Array:
    """Return the exposed communication of a step that takes `step_seconds` without it.

    Rounds are sequential: if they take longer than the steps between them, they set the pace.
    """
    waiting = np.maximum(of.seconds - of.overlapped_steps * step_seconds, 0.0) * of.per_step
    return np.maximum(waiting, of.seconds * of.per_step - step_seconds)


def state_bytes(sync: SyncSettings, replicas: Array) -> Array:
    """Return the bytes that the mode keeps for each parameter that a worker holds."""
    return _by_number(replicas, sync.state_bytes)


def extra_samples(sync: SyncSettings, replicas: Array) -> Array:
    """Return the samples needed to reach the same loss, relative to plain all-reduce: assumed."""
    return _by_number(replicas, sync.extra_samples)


def _by_number(replicas: Array, of: Callable[[int], float]) -> Array:
    numbers, place = np.unique(replicas, return_inverse=True)
    return np.array([float(of(int(each))) for each in numbers])[place]
