"""Overrides of a training in a study: steps, global batch, seed and learning rate.

The learning rate scales linearly with the batch for SGD, with a warm-up (Goyal et al., Accurate,
large minibatch SGD, 2017), and with its square root for optimizers that divide by the size of past
gradients, such as Adam (Malladi et al., On the SDEs and scaling rules for adaptive gradient
algorithms, 2022; their rule also changes the betas and epsilon, which stay unchanged here).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from paceline.learning.rules import batch_rule
from paceline.specs import Job, PacelineError
from paceline.train.state.tuned_batch import FAMILIES, Compressed, family_of
from paceline.user.training import Training

WARM_UP = 5 / 90
"""Fraction of the steps in which a scaled rate warms up: 5 of 90 epochs (Goyal et al.)."""


def as_studied(training: Training, job: Job) -> Training:
    """Return the training with the steps, global batch, seed and learning rate of the job.

    With equal samples, a larger batch takes fewer steps, and the schedule, written for the
    training's original steps, advances faster."""
    if job.seed_plus:
        training = replace(training, seed=training.seed + job.seed_plus)
    own = replace(training, steps=job.steps, epochs=None) if job.steps else training
    if job.batch_times == 1:
        return own
    if own.tuned_at is not None:
        raise PacelineError(
            f"a study of larger batches was asked for, but Training(tuned_at={own.tuned_at}) has"
            " rules for the batch already",
            fix="leave tuned_at=… out of the training that is studied, and give its own batch",
        )
    large = replace(own, batch=job.batch_times * own.batch)
    if job.equal_samples:
        large = replace(large, steps=own.steps_with_equal_samples(large.batch), epochs=None)
        large = _with_each(large, lambda each, every: _hastened(each, own, large, every))
    if job.scale_rate:
        large = _with_each(
            large,
            lambda each, every: replace(
                each,
                optimizer=_scaled(each.optimizer, job.batch_times, large.total_steps // every),
            ),
        )
    return large


def _with_each(training: Training, change: Callable[[Any, int], Any]) -> Training:
    """Change what has an optimizer, the training or each phase, given the steps per update."""
    if training.phases is None:
        changed: Training = change(training, 1)
        return changed
    phases = {name: change(phase, phase.every) for name, phase in training.phases.items()}
    return replace(training, phases=phases)


def _hastened(each: Any, own: Training, large: Training, every: int) -> Any:
    schedule, steps = each.schedule, (own.total_steps // every, large.total_steps // every)
    if schedule is None:
        return each
    return replace(each, schedule=lambda optimizer: Compressed(schedule(optimizer), *steps))


def rate_times(optimizer: torch.optim.Optimizer, batch_times: int) -> float:
    """Return the factor by which an optimizer's learning rate grows with the batch."""
    if (family := family_of(optimizer)) is not None:
        return batch_rule(family, batch_times, 1).rate_times
    known = ", ".join(each.__name__ for each in FAMILIES)
    raise PacelineError(
        f"lr=scaled was given, but there is no rule to scale the learning rate"
        f" of {type(optimizer).__name__} with the batch",
        fix=f"leave lr=scaled out, or use one of {known}",
    )


def _scaled(
    build: Callable[..., torch.optim.Optimizer], batch_times: int, steps: int
) -> Callable[..., torch.optim.Optimizer]:
    """Return a function that builds the same optimizer with a scaled learning rate."""
    warm_up = math.ceil(WARM_UP * steps)

    def built(parameters: Any) -> torch.optim.Optimizer:
        optimizer = build(parameters)
        times = rate_times(optimizer, batch_times)
        own: list[Any] = []
        done = 0

        # Scale only during the update: a schedule continues from the rate that it has set.
        def grow(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            del args, kwargs
            nonlocal done, own
            now = 1 + (times - 1) * min(1.0, done / warm_up)
            done += 1
            own = [group["lr"] for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * now

        def shrink(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            del args, kwargs
            for group, rate in zip(optimizer.param_groups, own, strict=True):
                group["lr"] = rate

        optimizer.register_step_pre_hook(grow)
        optimizer.register_step_post_hook(shrink)
        return optimizer

    return built
