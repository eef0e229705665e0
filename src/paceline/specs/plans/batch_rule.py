"""What changes in a training with another batch than the one that it was tuned at."""

from pydantic import PositiveFloat, PositiveInt

from paceline.specs.base import Spec


class BatchRule(Spec):
    """Factors for the settings of an optimizer, and for the samples."""

    batch: PositiveInt
    replicas: PositiveInt = 1
    """Replicas that take local steps: the rule is for the batch of one, the samples are of all."""
    tuned_at: PositiveInt
    rate_times: PositiveFloat
    betas_power: PositiveFloat
    """Exponent of the decays of past gradients; 1 leaves them."""
    decay_times: PositiveFloat
    """Factor of the weight decay."""
    samples_times: PositiveFloat
    """Samples to the same loss; 1 while the critical batch is not known."""
    critical_batch: PositiveFloat | None = None
