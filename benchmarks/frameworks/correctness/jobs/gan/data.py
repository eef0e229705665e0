"""Points of two moons, each with noise for the generator."""

import torch
from sklearn.datasets import make_moons
from torch.utils.data import TensorDataset

from examples.gan.train import NOISE, POINTS


def points() -> TensorDataset:
    """Return pairs of noise and point."""
    real, _ = make_moons(POINTS, noise=0.05, random_state=0)
    noise = torch.randn(POINTS, NOISE, generator=torch.Generator().manual_seed(0))
    return TensorDataset(noise, torch.tensor(real, dtype=torch.float32))
