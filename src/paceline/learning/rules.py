"""Rules for another batch: learning rate, betas, weight decay and samples.

`times` is the new batch over the one that the settings were tuned at.

- SGD: the rate grows with the batch (Goyal et al., Accurate, large minibatch SGD, 2017); with a
  known noise scale by the gain, which levels off there (McCandlish et al., 2018; Johnson et al.,
  AdaScale SGD, 2020). Momentum stays.
- Optimizers that divide by the size of past gradients, such as Adam: the rate grows with the
  square root of the batch (Malladi et al., On the SDEs and scaling rules for adaptive gradient
  algorithms, 2022). Averages of past gradients keep their half-lives in samples: beta becomes
  beta^times (Marek et al., Small batch size training for language models, 2025).
- Weight decay keeps its half-life in samples: rate x decay grows with the batch (Bergsma et al.,
  Power lines, 2025).
"""

import math
from typing import Literal

from paceline.learning.critical_batch import samples_times
from paceline.specs.plans.batch_rule import BatchRule

Family = Literal["linear", "square root"]


def batch_rule(
    family: Family, batch: int, tuned_at: int, critical: float | None = None, replicas: int = 1
) -> BatchRule:
    """Return the rule for a batch, given the one that the settings were tuned at.

    `replicas` that take local steps each update with their part of the batch only.
    """
    times = batch / replicas / tuned_at
    rate = math.sqrt(times) if family == "square root" else gain(times, tuned_at, critical)
    return BatchRule(
        batch=batch,
        replicas=replicas,
        tuned_at=tuned_at,
        rate_times=rate,
        betas_power=times if family == "square root" else 1.0,
        decay_times=times / rate,
        samples_times=1.0 if critical is None else samples_times(batch, tuned_at, critical),
        critical_batch=critical,
    )


def gain(times: float, tuned_at: float, noise_scale: float | None) -> float:
    """Return the steps of the tuned batch that one step of the larger batch is worth."""
    if noise_scale is None:
        return times
    return times * (1 + tuned_at / noise_scale) / (1 + times * tuned_at / noise_scale)


def changes_in_words(rule: BatchRule) -> str:
    """Return what a rule changes in an optimizer."""
    changes = [f"learning rate × {rule.rate_times:.3g}"]
    if rule.betas_power != 1:
        changes.append(f"betas to the power of {rule.betas_power:.3g}")
    if rule.decay_times != 1:
        changes.append(f"weight decay × {rule.decay_times:.3g}")
    return ", ".join(changes)


def in_words(rule: BatchRule, steps: int, tuned_steps: int) -> str:
    """Return what a rule changes, in one line."""
    samples = (
        "as many samples, since the critical batch is not known"
        if rule.critical_batch is None
        else f"samples × {rule.samples_times:.3g} for a critical batch of"
        f" {rule.critical_batch:,.0f}"
    )
    apart = f" ({rule.batch / rule.replicas:,.4g} on each replica)" if rule.replicas > 1 else ""
    return (
        f"batch {rule.batch:,}{apart}, tuned at {rule.tuned_at:,}: {changes_in_words(rule)};"
        f" {steps:,} steps instead of {tuned_steps:,} ({samples})"
    )
