"""The job that TensorFlow and PyTorch share: first weights and samples as NumPy arrays."""

import itertools
import os

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

BATCH, WORKERS, LEARNING_RATE, MOMENTUM = 256, 2, 0.05, 0.9
STEPS = int(os.environ.get("FRAMEWORKS_STEPS", "60"))
WIDTHS = (512, 2048, 2048, 16)
"""Of the input, the hidden layers and the classes: 5.3 million parameters."""


def first_weights() -> list[Array]:
    """A matrix (inputs, outputs) for each layer; biases begin as zero."""
    random = np.random.default_rng(0)
    return [
        (random.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)
        for rows, columns in itertools.pairwise(WIDTHS)
    ]


def samples() -> tuple[Array, NDArray[np.int64]]:
    """Points around one centre for each class, in the order in which they are trained on."""
    random = np.random.default_rng(1)
    centres = random.standard_normal((WIDTHS[-1], WIDTHS[0]))
    labels = random.integers(WIDTHS[-1], size=STEPS * BATCH)
    noise = 4 * random.standard_normal((len(labels), WIDTHS[0]))
    return (centres[labels] + noise).astype(np.float32), labels
