"""Shapes in noise, to train on and to validate with."""

from torch.utils.data import Dataset, Subset

from benchmarks.frameworks.correctness.jobs.given import chosen
from examples.resnet.train import Shapes

VALIDATION_SAMPLES = 100


def shapes() -> Subset[object]:
    """Return the samples to train on, not augmented: every framework draws its own numbers."""
    return chosen(Shapes(1536, seed=0, flips=False))


def held_out() -> Dataset[object]:
    """Return the samples to validate with; three workers cannot have equally many."""
    return Shapes(VALIDATION_SAMPLES, seed=1, flips=False)
