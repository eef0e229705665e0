"""Measured times of a device's kernels on grids of sizes."""

import math
from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from paceline.specs.base import FiniteSpec
from paceline.specs.measurements.profile import TrainingPrecision

VariantName = Literal["eighths", "unaligned", "grouped"]
"""`eighths`: widths are multiples of 8, but not of 64. `unaligned`: not even of 8. `grouped`:
several query heads share keys and values."""


class KernelVariant(FiniteSpec):
    """Time of a variant of a kernel, relative to the grid's time for the same size."""

    name: VariantName
    work: tuple[PositiveFloat, ...] = Field(min_length=1, max_length=64)
    """FLOPs of the measured sizes in forward, ascending."""
    forward: tuple[PositiveFloat, ...]
    backward: tuple[PositiveFloat, ...]

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        if any(len(each) != len(self.work) for each in (self.forward, self.backward)):
            raise ValueError("work, forward and backward differ in number")
        if any(one >= next_one for one, next_one in pairwise(self.work)):
            raise ValueError("work must ascend")
        return self


class KernelGrid(FiniteSpec):
    """Seconds of a kernel on a grid of three dimensions, one entry per point.

    A linear layer has rows, inner and columns, and backward is the sum of its two products.
    Attention has heads of all samples, tokens, and the width of a head.
    """

    kernel: Literal["linear", "attention"]
    precision: TrainingPrecision
    causal: bool = False
    """Whether a mask hides later tokens, which are skipped if the kernel is fused."""
    fused: bool = True
    """Whether one kernel computes the whole core of attention; if not, the time is that of all its
    products and what lies between them."""
    axes: tuple[tuple[PositiveInt, ...], tuple[PositiveInt, ...], tuple[PositiveInt, ...]]
    """Sizes along each dimension, ascending."""
    forward_seconds: tuple[PositiveFloat, ...] = Field(max_length=4096)
    """The last dimension varies fastest."""
    backward_seconds: tuple[PositiveFloat, ...] = Field(max_length=4096)
    variants: tuple[KernelVariant, ...] = Field(default=(), max_length=8)

    @model_validator(mode="after")
    def _check_points(self) -> Self:
        for axis in self.axes:
            if len(axis) < 2 or any(one >= next_one for one, next_one in pairwise(axis)):
                raise ValueError("every axis must have at least two sizes, which ascend")
        points = math.prod(len(axis) for axis in self.axes)
        if any(len(each) != points for each in (self.forward_seconds, self.backward_seconds)):
            raise ValueError("seconds and points of the grid differ in number")
        return self


class KernelSource(FiniteSpec):
    """What measured times depend on."""

    device: str
    versions: tuple[tuple[str, str], ...] = Field(max_length=32)
    """Names and versions of torch, the driver and libraries."""
    neighbors: PositiveInt
    """Workers on a node, which measured at the same time."""


class KernelTable(FiniteSpec):
    """All measured kernels of one kind of device."""

    source: KernelSource
    measured_on: str
    """The day."""
    grids: tuple[KernelGrid, ...] = Field(max_length=64)
