"""Steps of another batch size that learn as much."""

import math


def steps_with(batch: int, own_batch: int, own_steps: int, critical_batch: float | None) -> int:
    """Return how many steps of `batch` samples learn as much as `own_steps` of `own_batch`.

    Larger batches need more samples: E = E_min (1 + B / B_crit), as McCandlish et al. found (An
    empirical model of large-batch training, 2018). Where the critical batch size is not known, the
    number of samples stays the same.
    """
    critical = critical_batch or math.inf
    least = own_steps * own_batch / (1.0 + own_batch / critical)
    return math.ceil(least * (1.0 + batch / critical) / batch)
