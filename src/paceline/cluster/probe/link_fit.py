"""Fits of measured times by latency + (bytes - free bytes) / rate."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.specs.measurements.cluster import CollectiveCost
from paceline.specs.measurements.probe import CollectiveTime

FASTEST = 1e3
"""Upper limit of a fitted rate, relative to the largest message's: noise can hide the slope."""
ROUNDS = 20
SMALL_ERROR = 0.02
"""Relative errors below this count as equal: times are no more exact."""
BETTER = 0.75
"""A bend must reduce the straight line's errors to this fraction, since it also fits noise."""
FEWEST_FOR_BEND = 5
EMPHASIS = 0.25
"""Exponent of a message's size in its weight: most time goes into large messages."""

_Array = npt.NDArray[np.float64]


class Line(NamedTuple):
    """Seconds = latency + max(bytes - free bytes, 0) / rate."""

    latency_seconds: float
    bytes_per_second: float
    free_bytes: float

    def seconds(self, nbytes: float) -> float:
        """Return the seconds of a message."""
        counted = max(nbytes - self.free_bytes, 0.0)
        return self.latency_seconds + counted / self.bytes_per_second


def line(nbytes: Sequence[float], seconds: Sequence[float]) -> Line:
    """Fit a line with the least relative errors.

    Errors are relative, so that small messages count as well. Least squares with smaller weights
    for large errors make the fit robust to single delayed calls.
    """
    sizes, times = np.asarray(nbytes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if len(sizes) == 1:  # one size cannot separate latency from rate
        return Line(0.0, float(sizes[0] / times[0]), 0.0)
    found, error = _straight(sizes, times, 0.0)
    if len(sizes) < FEWEST_FOR_BEND:
        return found
    between = np.sqrt(sizes[:-1] * sizes[1:])
    bends = np.concatenate([sizes[1:-2], between[1:-2]])
    bent, least = min((_straight(sizes, times, float(free)) for free in bends), key=lambda a: a[1])
    return bent if least < BETTER * error else found


def _straight(sizes: _Array, times: _Array, free: float) -> tuple[Line, float]:
    """Fit a line with these free bytes; also return the weighted sum of its relative errors."""
    from scipy.optimize import nnls  # noqa: PLC0415

    counted = np.maximum(sizes - free, 0.0)
    # The slope is in units of the largest message's, so that both unknowns have similar size.
    unit = float(times[-1] / sizes[-1])
    columns = np.stack([1.0 / times, unit * counted / times], axis=1)
    # The slope is at least 1 / FASTEST: solve for the excess.
    target = 1.0 - columns[:, 1] / FASTEST
    importance = (sizes / sizes[-1]) ** EMPHASIS
    weights = importance
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        latency, above = nnls(columns * root[:, np.newaxis], target * root)[0].tolist()
        errors = np.abs(columns @ (latency, above) - target)
        weights = importance / np.maximum(errors, SMALL_ERROR)
    return Line(latency, 1.0 / ((above + 1.0 / FASTEST) * unit), free), float(importance @ errors)


def costs(times: Sequence[CollectiveTime]) -> tuple[CollectiveCost, ...]:
    """Fit a line for each operation and grouping."""
    cases: dict[tuple[str, int, int], list[CollectiveTime]] = {}
    for each in times:
        cases.setdefault((each.operation, each.members, each.members_per_node), []).append(each)
    found = []
    for case in cases.values():
        case.sort(key=lambda each: each.nbytes)
        drawn = line([each.nbytes for each in case], [each.seconds for each in case])
        found.append(
            CollectiveCost(
                operation=case[0].operation,
                members=case[0].members,
                members_per_node=case[0].members_per_node,
                **drawn._asdict(),
            )
        )
    return tuple(found)
