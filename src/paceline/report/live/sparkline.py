"""A row of blocks that draws numbers in a terminal."""

import math

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], columns: int) -> str:
    """Draw values as a row of blocks, each the mean of an interval; blank if none is finite."""
    columns = min(columns, len(values))
    means = []
    for column in range(columns):
        part = values[column * len(values) // columns : (column + 1) * len(values) // columns]
        finite = [value for value in part if math.isfinite(value)]
        means.append(math.fsum(finite) / len(finite) if finite else math.nan)
    finite_means = [mean for mean in means if math.isfinite(mean)]
    low, high = min(finite_means, default=0.0), max(finite_means, default=0.0)
    # By halves: the difference of two finite numbers may be infinite, and its inverse, too.
    span = high / 2 - low / 2

    def block(mean: float) -> str:
        height = (mean / 2 - low / 2) / span if span else 0.0
        return _BLOCKS[round(height * (len(_BLOCKS) - 1))]

    return "".join(block(mean) if math.isfinite(mean) else " " for mean in means)
