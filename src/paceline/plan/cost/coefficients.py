"""What the planner does not know of a cluster and its software: few numbers, each with a guess.

Each guess says how far off it may be and where it comes from; `calibrate` replaces guesses by what
runs show.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from paceline.cluster.collectives import Array
from paceline.specs.plans.estimate import Origin


class Guess(NamedTuple):
    """A number before anything was measured."""

    value: float
    spread: float
    """Standard deviation of its logarithm: 0.1 is about ten percent."""
    origin: Origin
    why: str


GUESSES = {
    "matmul_rate": Guess(
        1.0, 0.1, "published", "of what the catalogue says that training sustains"
    ),
    "small_matmul": Guess(
        1.0, 0.5, "assumed", "time of reading and writing the matrices, added to that of computing"
    ),
    "unfilled_units": Guess(
        0.25, 1.5, "assumed", "tiles of 128 x 128 for every unit that a product leaves idle"
    ),
    "attention_rate": Guess(
        0.4, 0.45, "published", "fused attention by matrix products (FlashAttention 1 and 2, A100)"
    ),
    "memory_rate": Guess(0.8, 0.2, "assumed", "of the memory's bandwidth, between products"),
    "launch_seconds": Guess(
        1.2e-5, 0.6, "assumed", "the host's time for one operation of eager PyTorch"
    ),
    "call_seconds": Guess(
        2e-5,
        0.7,
        "published",
        "a collective before bytes move (vTrain's traces: 40 us above 1 MiB)",
    ),
    "handover_seconds": Guess(
        1e-4, 0.7, "assumed", "the host's waiting at a transfer from stage to stage"
    ),
    "inside_rate": Guess(1.0, 0.2, "published", "of the catalogue's link inside a node"),
    "between_rate": Guess(0.8, 0.3, "assumed", "of the line rate between nodes"),
    "exchange_rate": Guess(
        0.8, 0.4, "assumed", "of a collective's rate, what gradients in buckets and groups reach"
    ),
    "overlap": Guess(0.8, 0.2, "assumed", "of computing, what can hide communication"),
    "optimizer_bytes": Guess(
        40.0, 0.4, "assumed", "Adam for a parameter: state, weight and gradient, read and written"
    ),
    "step_seconds": Guess(0.005, 1.0, "assumed", "of a step in which nothing else happens"),
    "jitter": Guess(
        0.01, 0.7, "assumed", "spread of the workers' times, of which the slowest counts"
    ),
}


@dataclass(frozen=True)
class Numbers:
    """A value for each guess: single numbers, or arrays of them that stand before the layouts."""

    matmul_rate: Array
    small_matmul: Array
    unfilled_units: Array
    attention_rate: Array
    memory_rate: Array
    launch_seconds: Array
    call_seconds: Array
    handover_seconds: Array
    inside_rate: Array
    between_rate: Array
    exchange_rate: Array
    overlap: Array
    optimizer_bytes: Array
    step_seconds: Array
    jitter: Array

    def faster(self, factor: float) -> "Numbers":
        """With another rate of matrix products: those of one kind of device and precision."""
        return replace(self, matmul_rate=self.matmul_rate * factor)

    @classmethod
    def guessed(cls, guesses: Mapping[str, Guess] = GUESSES) -> "Numbers":
        """Before anything was measured."""
        return cls.from_logs(np.log([guess.value for guess in guesses.values()]))

    @classmethod
    def from_logs(cls, logs: Array) -> "Numbers":
        """From logarithms, in the order of `GUESSES`; further rows become further cases."""
        values = np.exp(logs)
        columns = values if logs.ndim == 1 else values.T[:, :, np.newaxis]
        return cls(*(np.asarray(column) for column in columns))

    @property
    def logs(self) -> Array:
        """Logarithms, in the order of `GUESSES`."""
        return np.log([float(getattr(self, each.name)) for each in fields(self)])


KIND_SPREAD = 0.1
"""Of the logarithm of `matmul_rate`, from one kind of device and precision to another."""


def spreads(guesses: Mapping[str, Guess] = GUESSES) -> Array:
    """Of all numbers, in their order."""
    return np.array([guess.spread for guess in guesses.values()])
