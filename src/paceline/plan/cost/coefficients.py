"""The planner's coefficients: properties of a cluster and its software, each with a prior.

Each prior has a spread and an origin; `calibrate` fits the coefficients to measured runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from paceline.cluster.collectives import Array
from paceline.specs.plans.estimate import Origin


class Prior(NamedTuple):
    """A coefficient's prior, before anything is measured."""

    value: float
    spread: float
    """Standard deviation of its logarithm: 0.1 is about ten percent."""
    origin: Origin
    why: str


PRIORS = {
    "matmul_rate": Prior(1.0, 0.1, "published", "fraction of the catalog's sustained rate"),
    "small_matmul": Prior(
        1.0, 0.5, "assumed", "time to read and write the matrices, added to the time to compute"
    ),
    "idle_units": Prior(
        1.0, 0.3, "assumed", "time of compute units without a tile of a product, that much counts"
    ),
    "attention_rate": Prior(
        0.35,
        0.4,
        "published",
        "rate of fused attention relative to matrix products (FlashAttention 1 and 2, A100)",
    ),
    "unaligned_attention": Prior(
        10.0,
        0.5,
        "published",
        "time of attention's products if a head's width is no multiple of 8, relative (BLOOM)",
    ),
    "memory_rate": Prior(0.9, 0.2, "assumed", "fraction of the memory bandwidth, between products"),
    "launch_seconds": Prior(1.4e-5, 0.6, "assumed", "host time of one eager PyTorch operation"),
    "call_seconds": Prior(
        2e-5,
        0.7,
        "published",
        "a collective before bytes move (vTrain's traces: 40 us above 1 MiB)",
    ),
    "handover_seconds": Prior(
        1e-4, 0.7, "assumed", "host time of a transfer between pipeline stages"
    ),
    "inside_rate": Prior(0.95, 0.3, "published", "fraction of the catalog's link inside a node"),
    "between_rate": Prior(0.8, 0.3, "assumed", "fraction of the line rate between nodes"),
    "bucket_rate": Prior(
        0.7, 0.4, "assumed", "fraction of a collective's rate that gradient buckets reach"
    ),
    "overlap": Prior(
        0.8, 0.2, "assumed", "fraction of computation that can overlap with communication"
    ),
    "optimizer_bytes": Prior(
        40.0,
        0.4,
        "assumed",
        "bytes per parameter that Adam reads and writes: state, weight, gradient",
    ),
    "step_seconds": Prior(0.005, 1.0, "assumed", "overhead of a step"),
    "jitter": Prior(
        0.01, 0.7, "assumed", "relative spread of the workers' step times; the slowest counts"
    ),
}


@dataclass(frozen=True)
class Coefficients:
    """Values of the coefficients: scalars, or arrays whose first axis precedes that of the
    layouts."""

    matmul_rate: Array
    small_matmul: Array
    idle_units: Array
    attention_rate: Array
    unaligned_attention: Array
    memory_rate: Array
    launch_seconds: Array
    call_seconds: Array
    handover_seconds: Array
    inside_rate: Array
    between_rate: Array
    bucket_rate: Array
    overlap: Array
    optimizer_bytes: Array
    step_seconds: Array
    jitter: Array

    def faster(self, factor: float) -> "Coefficients":
        """Return the coefficients with the rate of matrix products multiplied by `factor`."""
        return replace(self, matmul_rate=self.matmul_rate * factor)

    @classmethod
    def prior(cls, priors: Mapping[str, Prior] = PRIORS) -> "Coefficients":
        """Return the priors' values."""
        return cls.from_logs(np.log([prior.value for prior in priors.values()]))

    @classmethod
    def from_logs(cls, logs: Array) -> "Coefficients":
        """Return coefficients from logarithms in the order of `PRIORS`; a row per case."""
        values = np.exp(logs)
        columns = values if logs.ndim == 1 else values.T[:, :, np.newaxis]
        return cls(*(np.asarray(column) for column in columns))

    @property
    def logs(self) -> Array:
        """Logarithms, in the order of `PRIORS`."""
        return np.log([float(getattr(self, each.name)) for each in fields(self)])


KIND_SPREAD = 0.1
"""Standard deviation of log `matmul_rate` between kinds of device and precision."""


def spreads(priors: Mapping[str, Prior] = PRIORS) -> Array:
    """Return the spreads of all coefficients, in order."""
    return np.array([prior.spread for prior in priors.values()])
