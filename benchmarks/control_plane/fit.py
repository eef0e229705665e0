"""Fit the simulation's costs and the growth of measured figures.

NumPy and SciPy are imported when they are used, after the workers were forked from this process.
"""

from collections.abc import Sequence

from benchmarks.control_plane.measurement import Measurement
from benchmarks.control_plane.simulated import Costs


def fitted_costs(measured: Sequence[Measurement]) -> Costs:
    """Fit the work per message, byte, member and pair of members on measured CPU seconds.

    All costs are at least zero. Errors count relative to each measurement.
    """
    import numpy as np  # noqa: PLC0415
    from scipy.optimize import nnls  # noqa: PLC0415

    rows = [(each.messages, each.total_bytes, each.members, each.members**2) for each in measured]
    seconds = np.array([each.cpu_seconds for each in measured])
    matrix = np.array(rows, dtype=float) / seconds[:, None]
    scale = matrix.max(axis=0)
    found, _ = nnls(matrix / scale, np.ones(len(rows)))
    message, byte, member, pair = found / scale
    return Costs(float(message), float(byte), float(member), float(pair))


def exponent(sizes: Sequence[int], figures: Sequence[float]) -> float:
    """Return b of the fit figure = a * size**b."""
    import numpy as np  # noqa: PLC0415

    if len(set(sizes)) < 2:
        return float("nan")
    slope, _ = np.polyfit(np.log(sizes), np.log(figures), 1)
    return float(slope)
