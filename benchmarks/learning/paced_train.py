"""A task of `benchmarks.learning` on an emulated device: `training BATCH CRITICAL SEED [unpaced]`.

Without arguments it has the batch that it was tuned at, which is what a probe and a plan look at.
"""

import sys
from dataclasses import replace

import paceline
from benchmarks.learning import train
from benchmarks.learning.growing import Pace, Paced

TASK, OPTIMIZER, SAMPLES = "bytes", "adamw", 16_384
PACE = Pace(step_seconds=0.020, sample_seconds=0.002)


def training() -> paceline.Training:
    """Return the training with the batch, critical batch and seed of the arguments."""
    words = sys.argv[1:]
    pace = Pace(0.0, 0.0) if "unpaced" in words else PACE
    steps = SAMPLES // train.TUNED_AT
    base = replace(
        train.training(TASK, OPTIMIZER),
        model=lambda: Paced(train.model(TASK), pace),
        schedule=train.cosine(steps),
        steps=steps,
    )
    numbers = [word for word in words if word != "unpaced"]
    if not numbers:
        return base
    batch, critical, seed = int(numbers[0]), float(numbers[1]), int(numbers[2])
    if batch == train.TUNED_AT:
        return replace(base, seed=seed)
    tuned = replace(base, batch=batch, tuned_at=train.TUNED_AT)
    return replace(tuned, critical_batch=critical, seed=seed)
