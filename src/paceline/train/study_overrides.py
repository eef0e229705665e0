"""What a study changes in a training: its length, its batch, its seed, its learning rate.

A learning rate that grows with the batch: in proportion to it for SGD, with a warm-up (Goyal et
al., Accurate, large minibatch SGD, 2017), and with its square root for optimizers that divide by
the size of past gradients, such as Adam (Malladi et al., On the SDEs and scaling rules for adaptive
gradient algorithms, 2022; their rule changes the betas and epsilon, too, which are left alone).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from paceline.specs import Job, PacelineError
from paceline.user.training import Training

LINEAR = (torch.optim.SGD,)
SQUARE_ROOT = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
)
WARM_UP = 5 / 90
"""Of the steps, in which a rate grows from the training's own: 5 of 90 epochs (Goyal et al.)."""


def as_studied(training: Training, job: Job) -> Training:
    """The training with the steps, the batch, the seed and the rate that the job says, if it does.

    Where samples are to be equal, a larger batch takes fewer steps, and the schedule, which was
    written for the training's own steps, is led through as much of itself by fewer."""
    if job.seed_plus:
        training = replace(training, seed=training.seed + job.seed_plus)
    own = replace(training, steps=job.steps, epochs=None) if job.steps else training
    if job.batch_times == 1:
        return own
    large = replace(own, batch=job.batch_times * own.batch)
    if job.equal_samples:
        large = replace(large, steps=_steps_with(own, large.batch), epochs=None)
        if own.schedule is not None:
            schedule, steps = own.schedule, (own.total_steps, large.total_steps)
            large = replace(large, schedule=lambda each: _Hastened(schedule(each), *steps))
    if job.scale_rate:
        large = replace(
            large, optimizer=_scaled(large.optimizer, job.batch_times, large.total_steps)
        )
    return large


def rate_times(optimizer: torch.optim.Optimizer, batch_times: int) -> float:
    """By what the learning rate of an optimizer grows with the batch."""
    if isinstance(optimizer, LINEAR):
        return float(batch_times)
    if isinstance(optimizer, SQUARE_ROOT):
        return math.sqrt(batch_times)
    known = ", ".join(each.__name__ for each in (*LINEAR, *SQUARE_ROOT))
    raise PacelineError(
        f"lr=scaled was given, but there is no rule by which the rate of"
        f" {type(optimizer).__name__} grows with the batch",
        fix=f"leave lr=scaled out, or use one of {known}",
    )


def _steps_with(own: Training, batch: int) -> int:
    """Of this batch, that see all samples of the training's own steps; the last batch of an epoch
    holds what is left of it."""
    epoch = own.sample_order().samples
    epochs, steps = divmod(own.total_steps, -(-epoch // own.batch))
    return epochs * -(-epoch // batch) + -(-min(steps * own.batch, epoch) // batch)


def _scaled(
    build: Callable[..., torch.optim.Optimizer], batch_times: int, steps: int
) -> Callable[..., torch.optim.Optimizer]:
    """Builds the same optimizer, of which each step takes a larger rate."""
    warm_up = math.ceil(WARM_UP * steps)

    def built(parameters: Any) -> torch.optim.Optimizer:
        optimizer = build(parameters)
        times = rate_times(optimizer, batch_times)
        own: list[Any] = []
        done = 0

        # Only while the weights change: a schedule goes on from the rate that it has set.
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


class _Hastened(LRScheduler):
    """A schedule of `own_steps` that is through after `steps`."""

    def __init__(self, schedule: LRScheduler, own_steps: int, steps: int) -> None:
        # Not the base's own, which would set rates.
        self._schedule, self._own_steps, self._steps = schedule, own_steps, steps
        self._done = 0

    def step(self, epoch: int | None = None) -> None:
        """As many steps of the schedule as one larger step is worth."""
        del epoch
        before = round(self._done * self._own_steps / self._steps)
        self._done += 1
        for _ in range(round(self._done * self._own_steps / self._steps) - before):
            self._schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """With how far it is."""
        return {"done": self._done, "schedule": self._schedule.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self._done = state_dict["done"]
        self._schedule.load_state_dict(state_dict["schedule"])
