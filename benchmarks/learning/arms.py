"""One run of the comparison, in a process of its own."""

import math
import sys
from dataclasses import dataclass, replace

import torch

import paceline
from benchmarks.learning import train
from paceline.specs import PacelineError


@dataclass(frozen=True)
class Arm:
    """One run: a task with its optimizer, a seed, and how its batch was changed."""

    task: str
    optimizer: str
    seed: int
    batch_times: int = 1
    rate_times: float = 1.0
    critical_batch: float | None = None
    """Set for the advised arm."""


def trained(arm: Arm) -> float:
    """Train an arm in this process; return its loss on held-out data, infinite if it failed."""
    torch.set_num_threads(1)
    base = train.training(arm.task, arm.optimizer)
    batch = arm.batch_times * train.TUNED_AT
    if arm.critical_batch is not None:
        advised = replace(base, batch=batch, tuned_at=train.TUNED_AT)
        training = replace(advised, critical_batch=arm.critical_batch)
    else:
        rate = arm.rate_times * train.RATES[arm.task, arm.optimizer]
        training = train.training(arm.task, arm.optimizer, batch, rate)
    training = replace(training, seed=arm.seed, noise_every=0)
    try:
        with paceline.start(training) as trainer:
            for each in trainer:
                trainer.step(each)
            return trainer.evaluate(train.data(arm.task, held_out=True)).loss
    except PacelineError as error:
        print(f"{arm}: {error}", file=sys.stderr)
        return math.inf
