"""What was measured at some sizes of a micro-batch, at any other."""

from collections.abc import Sequence

import numpy as np

from paceline.cluster.collectives import Array


def between_sizes(samples: Array, measured: Sequence[int], seconds: Sequence[float]) -> Array:
    """Seconds for micro-batches of `samples`, on straight lines between the measured ones.

    Beyond the largest, each further sample takes as long as the last ones measured did; below the
    smallest nothing is shorter.
    """
    last = measured[-1]
    if len(measured) == 1:
        return np.asarray(seconds[0] * np.maximum(samples / last, 1.0))
    each = max(0.0, (seconds[-1] - seconds[-2]) / (last - measured[-2]))
    inside = np.interp(samples, measured, seconds)
    return np.asarray(inside + each * np.maximum(samples - last, 0.0))
