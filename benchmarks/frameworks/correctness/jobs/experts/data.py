"""Handwritten digits."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset


def digits() -> TensorDataset:
    """Return pairs of pixels and label."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
