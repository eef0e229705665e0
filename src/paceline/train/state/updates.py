"""The optimizers of a training: a single one, or one per phase."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.optim.lr_scheduler import LRScheduler

from paceline.comm.groups import Groups
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.phased_model import PhasedModel
from paceline.parallel.step.loss_scaling import LossScaling
from paceline.specs import Layout, PacelineError, SyncSettings
from paceline.user.parameters import Parameters
from paceline.user.phase import Phase
from paceline.user.training import Training


@dataclass(frozen=True)
class Update:
    """One synchronized update of a step: an optimizer, its schedule and its loss scaling."""

    phase: str
    """The name of its phase; empty for the single update of a training without phases."""
    optimizer: torch.optim.Optimizer
    schedule: LRScheduler | None
    scaling: LossScaling
    clip: float | None
    every: int = 1
    """Taken in every this many steps."""

    @property
    def prefix(self) -> str:
        """Prefix of its names in a checkpoint."""
        return f"phases/{self.phase}/" if self.phase else ""


def updates_of(
    training: Training,
    parallel_model: ParallelModel,
    layout: Layout,
    groups: Groups,
    sync: SyncSettings,
) -> list[Update]:
    """Build the optimizers of a training, in the order of its phases."""

    def update(
        name: str,
        of: Training | Phase,
        named: Iterable[tuple[str, torch.nn.Parameter]],
        every: int,
    ) -> Update:
        optimizer = _checked(of.optimizer(Parameters(named)))
        schedule = of.schedule(optimizer) if of.schedule else None
        scaling = LossScaling(layout, groups, replicas_differ=sync.replicas_differ)
        return Update(name, optimizer, schedule, scaling, of.clip, every)

    if training.phases is None:
        return [update("", training, parallel_model.named_parameters(), every=1)]
    assert isinstance(parallel_model, PhasedModel)
    return [
        update(name, phase, parallel_model.trained_by(name), every=phase.every)
        for name, phase in training.phases.items()
    ]


def _checked(built: object) -> torch.optim.Optimizer:
    if not isinstance(built, torch.optim.Optimizer):
        raise PacelineError(
            f"Training(optimizer=…) built a value of type {type(built).__name__}, not an optimizer",
            fix="return one torch.optim.Optimizer, with parameter groups for different rates; give"
            " phases={name: paceline.Phase(…)} for several optimizers",
        )
    return built
