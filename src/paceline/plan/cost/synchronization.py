"""What replicas exchange that agree in another way than by a plain sum, in seconds and bytes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives import COLLECTIVES, UNPROBED, Array, Group
from paceline.plan.cost.engine import Engine
from paceline.specs.plans.sync import Sync
from paceline.sync.costs import extra_samples, kept_bytes, traffic

_SECONDS = {**COLLECTIVES, **UNPROBED, "receive": COLLECTIVES["send"]}


@dataclass(frozen=True)
class Exchange:
    """Of what a worker holds, for every layout."""

    seconds: Array
    """Of one."""
    per_step: float
    hidden_steps: int
    """That it may take while training goes on."""


def exchange(
    engine: Engine,
    replicas: Array,
    parameters: Array,
    group: Group,
    memory_rate: Array,
    launch_seconds: Array,
) -> Exchange:
    """Between `replicas` workers with `parameters` each; `group` is where they are."""
    # Few of many layouts differ in these two.
    key, place = np.unique(replicas + 1j * np.round(parameters), return_inverse=True)
    bucket_bytes = engine.bucket_bytes or int(engine.gradient_bytes * np.max(parameters))
    cases = [
        traffic(engine.sync, int(each.real), int(each.imag), bucket_bytes=bucket_bytes)
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
    return Exchange(seconds, cases[0].per_step, cases[0].hidden_steps)


def exposed(of: Exchange, step_seconds: Array) -> Array:
    """In a step that takes `step_seconds` by itself, what it waits for exchanges.

    They follow each other: where they take longer than the steps between them, they set the pace.
    """
    waiting = np.maximum(of.seconds - of.hidden_steps * step_seconds, 0.0) * of.per_step
    return np.maximum(waiting, of.seconds * of.per_step - step_seconds)


def kept(sync: Sync, replicas: Array) -> Array:
    """Bytes for each parameter that a worker holds, for agreeing."""
    return _by_number(replicas, lambda workers: kept_bytes(sync, workers))


def extra(sync: Sync, replicas: Array) -> Array:
    """Times as many samples as a plain sum needs to the same loss: assumed."""
    return _by_number(replicas, lambda workers: extra_samples(sync, workers))


def _by_number(replicas: Array, of: Callable[[int], float]) -> Array:
    numbers, place = np.unique(replicas, return_inverse=True)
    return np.array([float(of(int(each))) for each in numbers])[place]
