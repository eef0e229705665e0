"""Times of any size from measured ones: interpolated between the points of a grid.

The logarithm of a time is interpolated linearly along the logarithms of the three sizes. So a
measured point has its measured time, a power law between two points is exact, and a larger size
never takes less time.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.specs.measurements.kernels import KernelGrid, VariantName

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KernelSizes:
    """The three sizes of each kernel, in the order of a grid's axes."""

    first: Array
    second: Array
    third: Array

    @property
    def columns(self) -> tuple[Array, Array, Array]:
        """The sizes by axis."""
        return self.first, self.second, self.third


class GridTimes:
    """Seconds of one kernel, by size."""

    def __init__(self, grid: KernelGrid) -> None:
        self.grid = grid
        self._axes = tuple(np.log(np.array(axis, dtype=np.float64)) for axis in grid.axes)
        shape = tuple(len(axis) for axis in grid.axes)
        both = (grid.forward_seconds, grid.backward_seconds)
        self._logs = np.stack([np.log(_ascending(np.reshape(each, shape))) for each in both])
        self._variants = {
            each.name: (np.log(each.work), np.log(each.forward), np.log(each.backward))
            for each in grid.variants
        }

    def clamped(self, sizes: KernelSizes) -> KernelSizes:
        """Return the nearest sizes within the grid; those inside it stay as they are."""
        columns = zip(sizes.columns, self.grid.axes, strict=True)
        return KernelSizes(*(np.clip(each, axis[0], axis[-1]) for each, axis in columns))

    def covers(self, sizes: KernelSizes) -> npt.NDArray[np.bool_]:
        """Return whether each size lies within the grid."""
        near = self.clamped(sizes)
        inside = (sizes.first == near.first) & (sizes.second == near.second)
        return np.asarray(inside & (sizes.third == near.third))

    def seconds(self, sizes: KernelSizes) -> tuple[Array, Array]:
        """Return the seconds in forward and backward of sizes within the grid."""
        found = self._interpolated(sizes)
        return np.exp(found[0]), np.exp(found[1])

    def variant(self, name: VariantName, work: Array) -> tuple[Array, Array]:
        """Return the time of a variant in forward and backward, relative to the grid's, for sizes
        with these FLOPs in forward; 1 if it was not measured."""
        if name not in self._variants:
            return np.ones_like(work), np.ones_like(work)
        measured, *ratios = self._variants[name]
        ahead, behind = (np.exp(np.interp(np.log(work), measured, each)) for each in ratios)
        return ahead, behind

    def _interpolated(self, sizes: KernelSizes) -> Array:
        """Return the logarithms of the seconds: for each size, the weighted mean of the corners of
        its cell."""
        below: list[npt.NDArray[np.intp]] = []
        parts: list[Array] = []
        for each, axis in zip(sizes.columns, self._axes, strict=True):
            log = np.log(each)
            cell = np.clip(np.searchsorted(axis, log, side="right") - 1, 0, len(axis) - 2)
            below.append(cell)
            parts.append((log - axis[cell]) / (axis[cell + 1] - axis[cell]))
        found: Array = np.zeros((2, *np.broadcast_shapes(*(each.shape for each in parts))))
        for corner in itertools.product((0, 1), repeat=3):
            weight = np.prod(
                np.broadcast_arrays(
                    *(part if up else 1.0 - part for up, part in zip(corner, parts, strict=True))
                ),
                axis=0,
            )
            one, two, three = (cell + up for up, cell in zip(corner, below, strict=True))
            found = found + weight * self._logs[:, one, two, three]
        return found


def _ascending(seconds: Array) -> Array:
    """Return times that never fall along an axis: a delay can only lengthen a measurement, so one
    that exceeds that of a larger size is taken down to it."""
    for axis in range(seconds.ndim):
        seconds = np.flip(np.minimum.accumulate(np.flip(seconds, axis), axis), axis)
    return seconds
