"""Made-up tables of kernels, whose times follow a known law."""

from collections.abc import Callable
from itertools import product
from typing import Any

from hypothesis import strategies as st

from paceline.specs.measurements.kernels import (
    KernelGrid,
    KernelSource,
    KernelTable,
    KernelVariant,
)

Axes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
AXES: Axes = ((64, 256, 1024), (64, 512, 4096), (128, 1024))
WIDE: Axes = ((1, 2**20), (1, 2**20), (1, 2**20))
Law = Callable[[int, int, int], float]


def grid(law: Law, *, axes: Axes = AXES, **settings: Any) -> KernelGrid:
    """A grid whose backward takes twice its forward."""
    forward = [law(*sizes) for sizes in product(*axes)]
    known = {
        "kernel": "linear",
        "precision": "bf16",
        "axes": axes,
        "forward_seconds": forward,
        "backward_seconds": [2.0 * each for each in forward],
    }
    return KernelGrid.model_validate(known | settings)


def of_power(exponent: float) -> Law:
    """A power of the product of the sizes."""
    return lambda one, two, three: 1e-9 * float(one * two * three) ** exponent


def variant(name: str, *slower: float) -> KernelVariant:
    """So many times slower at growing work."""
    work = [10.0 ** (6 + 3 * place) for place in range(len(slower))]
    return KernelVariant.model_validate(
        {"name": name, "work": work, "forward": slower, "backward": slower}
    )


def kernel_table(device: str, *grids: KernelGrid) -> KernelTable:
    """A table of that device."""
    source = KernelSource(device=device, versions=(("torch", "2.13.0"),), neighbors=1)
    return KernelTable(source=source, measured_on="2026-11-18", grids=grids)


sizes_inside = st.tuples(*(st.integers(axis[0], axis[-1]) for axis in AXES))
