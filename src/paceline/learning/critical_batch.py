"""Steps and samples to a loss by batch, and the critical batch that both follow from.

With the batch B and the critical batch C, a loss takes S (1 + C / B) steps and so S (B + C)
samples, where S is the fewest steps that any batch needs (McCandlish et al., 2018, section 2.3).
"""

import math
from collections.abc import Iterable
from statistics import NormalDist

from paceline.specs import CriticalBatch, PacelineError

LIKELY = 5
"""Values that stand for an interval."""


def samples_times(batch: float, tuned_at: float, critical: float) -> float:
    """Return how many times the samples of the batch `tuned_at` a batch needs."""
    return (batch + critical) / (tuned_at + critical)


def critical_batch(noise_scales: Iterable[tuple[float, float]], batch: float) -> float:
    """Return the critical batch of a training from its noise scales along the way.

    `noise_scales`: steps, and the noise scale over them. The mean goes by progress: a step at the
    noise scale b makes 1 / (1 + b / batch) of the progress of a step without noise.
    """
    progress = total = 0.0
    for steps, scale in noise_scales:
        made = steps / (1 + scale / batch)
        progress, total = progress + made, total + made * scale
    if not progress:
        raise PacelineError(
            "the critical batch was asked for, but no step has measured the noise scale",
            fix="train more steps, or measure more often with noise_every",
        )
    return total / progress


def likely(critical: CriticalBatch) -> list[float]:
    """Return values as likely as each other, for an interval of 90 % that is log-normal; the lower
    end alone where the other is not known."""
    if critical.value is None or critical.high is None:
        return [critical.at_hand]
    normal = NormalDist()
    spread = math.log(critical.high / critical.low) / (2 * normal.inv_cdf(0.95))
    quantiles = [normal.inv_cdf((each + 0.5) / LIKELY) for each in range(LIKELY)]
    return [critical.at_hand * math.exp(spread * each) for each in quantiles]
