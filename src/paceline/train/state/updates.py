"""The optimizers of a training: a single one, or one per phase."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.optim.lr_scheduler import LRScheduler

from paceline.comm.groups import Groups
from paceline.comm.torch_internals import can_skip
from paceline.parallel.check.optimizer_trial import OptimizerTrial
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.part_sums import give_whole_norms
from paceline.parallel.phased_model import PhasedModel
from paceline.parallel.step.loss_scaling import LossScaling
from paceline.specs import Layout, PacelineError, RuleApplied, SyncSettings
from paceline.train.gradients.batch_plan import BatchPlan
from paceline.train.state.fused_updates import fuse_on_accelerator
from paceline.train.state.settings_by_batch import set_to_batch
from paceline.train.state.tuned_batch import Compressed, replicas_apart
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
    closure: bool = False
    """Whether the optimizer evaluates loss and gradient itself, several times."""

    @property
    def can_skip(self) -> bool:
        """Whether the device can skip the update, so that the host need not know of it."""
        return can_skip(self.optimizer) and not self.closure

    @property
    def prefix(self) -> str:
        """Prefix of its names in a checkpoint."""
        return f"phases/{self.phase}/" if self.phase else ""

    def with_wrapped(self) -> Iterator["Update"]:
        """Yield one update per optimizer that this one wraps, such as SAM's, and then this one.

        Their state is saved beside it. It comes last: loading it joins what both share again.
        """
        for name, value in vars(self.optimizer).items():
            if isinstance(value, torch.optim.Optimizer) and value.state is not self.optimizer.state:
                phase = f"{self.phase}.{name}" if self.phase else name
                yield replace(self, phase=phase, optimizer=value, schedule=None)
        yield self


def updates_of(
    plan: BatchPlan,
    parallel_model: ParallelModel,
    layout: Layout,
    groups: Groups,
    sync: SyncSettings,
) -> list[Update]:
    """Build the optimizers of a training, in the order of its phases."""
    training = plan.training
    apart = replicas_apart(sync, layout, training)

    def update(
        name: str,
        of: Training | Phase,
        named: Iterable[tuple[str, torch.nn.Parameter]],
        closure: bool,
    ) -> Update:
        parameters = list(named)
        optimizer = _checked(of.optimizer(Parameters(parameters)))
        fuse_on_accelerator(optimizer, parallel_model, groups.device)
        give_whole_norms(optimizer, parallel_model, layout, groups)
        OptimizerTrial(of.optimizer, closure).check(parameters, layout, groups)
        says = groups.placement.rank == 0 and groups.placement.roster is None
        every = of.every if isinstance(of, Phase) else 1
        record = partial(plan.write_once, RuleApplied, phase=name)
        own_steps = set_to_batch(
            *(optimizer, plan, every, parallel_model.model, record),
            replicas=apart,
            served=sync.has_servers,
            says=says,
        )
        schedule = of.schedule(optimizer) if of.schedule else None
        if schedule is not None and own_steps is not None:
            schedule = Compressed(schedule, own_steps)
        scaling = LossScaling(layout, groups, replicas_differ=sync.replicas_differ)
        return Update(name, optimizer, schedule, scaling, of.clip, closure=closure)

    if training.phases is None:
        return [update("", training, parallel_model.named_parameters(), closure=False)]
    assert isinstance(parallel_model, PhasedModel)
    updates = []
    for name, phase in training.phases.items():
        built = update(name, phase, parallel_model.trained_by(name), closure=phase.closure)
        updates.append(replace(built, every=phase.every))
        if phase.closure and layout.precision == "fp16":
            raise PacelineError(
                f"phase {name} has a closure and precision=fp16, but an optimizer that evaluates"
                " the loss itself cannot skip an update that overflowed",
                fix="use --precision bf16 or fp32",
            )
    return updates


def _checked(built: object) -> torch.optim.Optimizer:
    if not isinstance(built, torch.optim.Optimizer):
        raise PacelineError(
            f"Training(optimizer=…) built a value of type {type(built).__name__}, not an optimizer",
            fix="return one torch.optim.Optimizer, with parameter groups for different rates; give"
            " phases={name: paceline.Phase(…)} for several optimizers",
        )
    return built
