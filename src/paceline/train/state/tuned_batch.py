"""Settings of an optimizer and its schedule for another batch than they were tuned at."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from paceline.comm.torch_internals import BatchNormLayer
from paceline.learning.rules import batch_rule
from paceline.parallel.step.whole_batch import gather_calls
from paceline.specs import BatchRule, Layout, PacelineError, SyncSettings
from paceline.train.gradients.optimizer_family import FAMILIES, family_of
from paceline.user.training import Training


def rule_for(
    optimizer: torch.optim.Optimizer,
    training: Training,
    batch: int | None = None,
    replicas: int = 1,
) -> BatchRule | None:
    """Return the rule for a batch, by default the training's, or None without `tuned_at`;
    `replicas`: how many divide it among their local steps."""
    batch = batch or training.first_batch
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
    return batch_rule(family, batch, training.tuned_at, training.critical_batch, replicas)


def replicas_apart(sync: SyncSettings, layout: Layout, training: Training) -> int:
    """Return how many replicas update their weights with their own part of a batch.

    Parameter servers apply the gradients of all workers, each for its part of the batch.
    """
    if not sync.replicas_differ or sync.has_servers or layout.replicas == 1:
        return 1
    if sync.undecided and training.tuned_at is not None:
        raise PacelineError(
            f"Training(tuned_at={training.tuned_at}) was given with --sync {sync.mode}, which"
            " chooses during training whether an update has the whole batch or a replica's part",
            fix="name a synchronization mode, or leave tuned_at=… out and set the rate yourself",
        )
    return layout.replicas


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
    before: int | None = gather_calls()

    def check(*_: object) -> None:
        nonlocal before  # a hook cannot be removed while the optimizer goes through all of them
        known, before = before, None
        if known is not None and gather_calls() > known:
            raise PacelineError(
                f"Training(tuned_at={training.tuned_at}) was given for a loss that compares the"
                " samples of a batch (paceline.gather): another batch makes another loss, and no"
                " rule covers that",
                fix=alone,
            )

    optimizer.register_step_pre_hook(check)


def apply_rule(rule: BatchRule, optimizer: torch.optim.Optimizer) -> None:
    """Change an optimizer that has taken no step, before its schedule is built."""
    for group in optimizer.param_groups:
        group.update(ruled(rule, group))


def ruled(rule: BatchRule, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a group of parameters that a rule changes."""
    found = {"lr": group["lr"] * rule.rate_times}
    if "betas" in group:
        found["betas"] = tuple(beta**rule.betas_power for beta in group["betas"])
    if "alpha" in group:  # of RMSprop
        found["alpha"] = group["alpha"] ** rule.betas_power
    if "weight_decay" in group:
        found["weight_decay"] = group["weight_decay"] * rule.decay_times
    return found


def evenly(own_steps: int, steps: int) -> Callable[[int], int]:
    """Return the original steps of a number of steps, if all steps have as many of them."""
    return lambda done: round(done * own_steps / steps)


class Compressed(LRScheduler):
    """A schedule written for other steps; `own_steps`: how many of them a number of steps is."""

    def __init__(self, schedule: LRScheduler, own_steps: Callable[[int], int]) -> None:
        # Skip the base class's __init__, which would set learning rates.
        self._schedule, self._own_steps = schedule, own_steps
        self._done = 0

    def step(self, epoch: int | None = None) -> None:
        """Advance the schedule by the number of original steps in one step."""
        del epoch
        before = self._own_steps(self._done)
        self._done += 1
        for _ in range(self._own_steps(self._done) - before):
            self._schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's state and position."""
        return {"done": self._done, "schedule": self._schedule.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the schedule's state and position."""
        self._done = state_dict["done"]
        self._schedule.load_state_dict(state_dict["schedule"])


def load_schedule(schedule: LRScheduler, state: dict[str, Any], updates: int) -> None:
    """Load the state of a schedule after a number of updates.

    Before or after it was saved, the batch may have been the one that the schedule is written for.
    """
    was_compressed = state.keys() == {"done", "schedule"}
    if isinstance(schedule, Compressed):
        state = state if was_compressed else {"done": updates, "schedule": state}
    elif was_compressed:
        state = state["schedule"]
    schedule.load_state_dict(state)
