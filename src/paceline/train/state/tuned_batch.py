"""Settings of an optimizer and its schedule for another batch than they were tuned at."""

from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from paceline.comm.torch_internals import BatchNormLayer
from paceline.learning.rules import Family, batch_rule
from paceline.parallel.step.whole_batch import gather_calls
from paceline.specs import BatchRule, PacelineError
from paceline.user.training import Training

FAMILIES: dict[type[torch.optim.Optimizer], Family] = {
    torch.optim.SGD: "linear",
    torch.optim.Adam: "square root",
    torch.optim.AdamW: "square root",
    torch.optim.NAdam: "square root",
    torch.optim.RAdam: "square root",
    torch.optim.RMSprop: "square root",
}


def family_of(optimizer: torch.optim.Optimizer) -> Family | None:
    """Return how an optimizer's rate grows with the batch; None where no rule is known."""
    return next((each for kind, each in FAMILIES.items() if isinstance(optimizer, kind)), None)


def rule_for(optimizer: torch.optim.Optimizer, training: Training) -> BatchRule | None:
    """Return the rule for the training's batch, or None if it was tuned at that batch."""
    if training.tuned_at is None:
        return None
    family = family_of(optimizer)
    if family is None:
        raise PacelineError(
            f"Training(tuned_at={training.tuned_at}) was given with {type(optimizer).__name__}, for"
            " which no rule for larger batches is known",
            fix=f"use one of {', '.join(each.__name__ for each in FAMILIES)}, or leave tuned_at=…"
            " out and set the rate yourself",
        )
    return batch_rule(family, training.batch, training.tuned_at, training.critical_batch)


def refuse_dependent_samples(
    training: Training, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Refuse rules for a model or a loss in which the samples of a batch depend on each other.

    A loss that calls `paceline.gather` is known only once it has: before the first update.
    """
    alone = "leave tuned_at=… out and set the rate yourself"
    layer = next(
        (name for name, each in model.named_modules() if isinstance(each, BatchNormLayer)), None
    )
    if layer is not None:
        raise PacelineError(
            f"Training(tuned_at={training.tuned_at}) was given for a model that normalizes over the"
            f" batch in {layer}: another batch changes what it computes, and no rule covers that",
            fix=f"normalize over features instead (nn.GroupNorm, nn.LayerNorm), or {alone}",
        )
    before = gather_calls()

    def check(*_: object) -> None:
        handle.remove()
        if gather_calls() > before:
            raise PacelineError(
                f"Training(tuned_at={training.tuned_at}) was given for a loss that compares the"
                " samples of a batch (paceline.gather): another batch makes another loss, and no"
                " rule covers that",
                fix=alone,
            )

    handle = optimizer.register_step_pre_hook(check)


def apply_rule(rule: BatchRule, optimizer: torch.optim.Optimizer) -> None:
    """Change an optimizer that has taken no step, before its schedule is built."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * rule.rate_times
        if "betas" in group:
            group["betas"] = tuple(beta**rule.betas_power for beta in group["betas"])
        if "alpha" in group:  # of RMSprop
            group["alpha"] = group["alpha"] ** rule.betas_power
        if "weight_decay" in group:
            group["weight_decay"] = group["weight_decay"] * rule.decay_times


class Compressed(LRScheduler):
    """A schedule written for `own_steps` steps, compressed into `steps`."""

    def __init__(self, schedule: LRScheduler, own_steps: int, steps: int) -> None:
        # Skip the base class's __init__, which would set learning rates.
        self._schedule, self._own_steps, self._steps = schedule, own_steps, steps
        self._done = 0

    def step(self, epoch: int | None = None) -> None:
        """Advance the schedule by the number of original steps in one larger step."""
        del epoch
        before = round(self._done * self._own_steps / self._steps)
        self._done += 1
        for _ in range(round(self._done * self._own_steps / self._steps) - before):
            self._schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's state and position."""
        return {"done": self._done, "schedule": self._schedule.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the schedule's state and position."""
        self._done = state_dict["done"]
        self._schedule.load_state_dict(state_dict["schedule"])
