"""Sets an optimizer to the batch of a training: by one rule, or by one for each stage."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from paceline.learning.growth import sizes
from paceline.learning.rules import changes_in_words
from paceline.learning.rules import in_words as rule_in_words
from paceline.specs import BatchRule
from paceline.train.gradients.batch_plan import BatchPlan
from paceline.train.state.tuned_batch import (
    apply_rule,
    evenly,
    refuse_dependent_samples,
    rule_for,
    ruled,
)
from paceline.user.growing_batch import Growth, in_words
from paceline.user.training import Training


def set_to_batch(
    optimizer: torch.optim.Optimizer,
    plan: BatchPlan,
    every: int,
    model: nn.Module,
    record: Callable[..., None],
    *,
    replicas: int,
    served: bool,
    says: bool,
) -> Callable[[int], int] | None:
    """Set an optimizer to the batch; return how many of its own steps a schedule advances in a
    number of updates, one in `every` steps. None: as many.

    `record` writes each rule; `replicas`: how many take local steps, each with its part of the
    batch; `served`: whether parameter servers update the weights, with the settings that this
    worker's optimizer shows; `says`: whether this worker prints it.
    """
    training = plan.training
    batches = batches_of(training) if training.grows else [training.first_batch]
    rules = [rule_for(optimizer, training, batch, replicas) for batch in batches]
    steps, tuned_steps = training.total_steps, training.tuned_steps
    if training.tuned_at is not None:
        refuse_dependent_samples(training, model, optimizer)
    for rule in rules:
        if rule is not None:
            record(
                optimizer=type(optimizer).__name__,
                rule=rule,
                rates=[float(ruled(rule, group)["lr"]) for group in optimizer.param_groups],
                steps=steps,
                tuned_steps=tuned_steps,
            )
    if training.grows:
        by_stage = StageRules(optimizer, plan, replicas) if training.tuned_at else None
        if says:
            print(growth_in_words(training, by_stage), flush=True)
        return lambda done: plan.own_steps(done * every) // every
    (rule,) = rules
    if rule is None:
        return None
    if served:
        apply_rule(rule, optimizer)
    else:
        StageRules(optimizer, plan, replicas)
    if says:
        print(rule_in_words(rule, steps, tuned_steps), flush=True)
    return evenly(tuned_steps // every, steps // every)


class StageRules:
    """Applies the rule of the current stage during each update.

    Only during the update: the optimizer's own settings, which schedules set and checkpoints hold,
    stay those of the batch that they were tuned at. So a run may go on with other replicas, whose
    local steps have another part of the batch.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, plan: BatchPlan, replicas: int) -> None:
        self._optimizer, self._plan, self._replicas = optimizer, plan, replicas
        self._rules: dict[int, BatchRule] = {}
        self._own: list[dict[str, Any]] = []
        self.at(plan.batch)  # refuses optimizers without a rule
        optimizer.register_step_pre_hook(self._apply)
        optimizer.register_step_post_hook(self._undo)

    def at(self, batch: int) -> BatchRule:
        """Return the rule of a batch."""
        if batch not in self._rules:
            rule = rule_for(self._optimizer, self._plan.training, batch, self._replicas)
            assert rule is not None
            self._rules[batch] = rule
        return self._rules[batch]

    def _apply(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        rule = self.at(self._plan.batch)
        self._own = [ruled(rule, group) for group in optimizer.param_groups]
        self._exchange(optimizer)

    def _undo(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        self._exchange(optimizer)

    def _exchange(self, optimizer: torch.optim.Optimizer) -> None:
        for group, kept in zip(optimizer.param_groups, self._own, strict=True):
            for name, value in kept.items():
                group[name], kept[name] = value, group[name]


def growth_in_words(training: Training, rules: StageRules | None) -> str:
    """Return how the batch of a training grows, and what changes with it."""
    most = "at most " if isinstance(training.batch, Growth) else ""
    samples = "" if training.critical_batch and training.tuned_at else ", with as many samples"
    lines = [
        f"batch {in_words(training.batch)}: {most}{training.total_steps:,} steps instead of"
        f" {training.tuned_steps:,} of {training.own_batch:,}{samples}; the schedule counts steps"
        f" of {training.own_batch:,} samples"
    ]
    if rules is None:
        lines.append(
            "learning rate, betas and weight decay stay, since Training(tuned_at=…) is not given"
        )
        return "\n".join(lines)
    lines += [
        f"batch {batch:,}: {changes_in_words(rules.at(batch))}" for batch in batches_of(training)
    ]
    return "\n".join(lines)


def batches_of(training: Training) -> list[int]:
    """Return the batches that a training may have, in rising order."""
    if isinstance(training.batch, Growth):
        return sizes(training.batch.first, training.batch.to)
    return sorted({batch for _, batch in training.stages.plan})
