"""A model that several phases train in turn, each with its own loss and parameters."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from paceline.data.loader import Batch
from paceline.parallel.data_parallel import replicated, reshard, sharded
from paceline.parallel.parallel_model import (
    LastBackward,
    Minimize,
    ParallelContext,
    PreparedModel,
)
from paceline.parallel.step.model_calls import call, checked_loss
from paceline.parallel.whole_model import WholeModel
from paceline.specs import Layout, PacelineError, SyncSettings
from paceline.user.phase import Phase, PhaseLoss, of_phases, reported_phase
from paceline.user.training import Measure


class PhasedModel(WholeModel):
    """A model on one worker, replicated or sharded, whose gradients are those of one phase."""

    def __init__(
        self,
        built: PreparedModel,
        setting: ParallelContext,
        *,
        size: int,
        phases: Mapping[str, Phase],
    ) -> None:
        self._phases = phases
        self._computing: dict[str, nn.Module] = {}
        """The module that computes each phase's loss and synchronizes its gradients."""
        self._others: dict[str, list[nn.Parameter]] = {}
        """The parameters that each phase does not train."""
        super().__init__(built, setting, size=size)
        self.begin(reported_phase(phases))

    def begin(self, phase: str) -> None:
        """Compute the loss and the gradients of this phase from now on."""
        self._phase, self._module = phase, self._computing[phase]

    def trained_by(self, phase: str) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of a phase with their names; raise if none of them is trained."""
        trains = self._phases[phase].trains
        found = [each for each in self.model.named_parameters() if trains(each[0])]
        if not any(parameter.requires_grad for _, parameter in found):
            first = next((name for name, _ in self.model.named_parameters()), "none")
            raise PacelineError(
                f"phase {phase} trains no parameter: {self._phases[phase].parameters!r} matches"
                f" {len(found)} of them, and none that requires gradients",
                fix=f'give a pattern of their names, such as "{first.partition(".")[0]}.*"',
            )
        yield from found

    def part_norms(self) -> None:
        """Return nothing: each phase has gradients of its own."""

    def learn(
        self, parts: Sequence[Batch], minimize: Minimize, last_backward: LastBackward = nullcontext
    ) -> list[torch.Tensor]:
        """Accumulate the phase's gradients in its parameters, and in no others."""
        losses = super().learn(parts, minimize, last_backward)
        for parameter in self._others[self._phase]:
            parameter.grad = None
        return losses

    def close(self) -> None:
        """Release the process groups."""
        super().close()
        self._computing = {}

    def _loss_of(self, part: Batch) -> torch.Tensor:
        return self._computed(self._phases[self._phase], part)

    def _measured(self, part: Batch, measures: Sequence[Measure]) -> list[torch.Tensor]:
        reported = self._phases[reported_phase(self._phases)]
        output: Any = None
        if any(each is not of_phases for each in measures):
            check_forward(self.model)
            output = self._module(_forward, part.inputs, part.target)
        return [
            self._computed(reported, part)
            if each is of_phases
            else checked_loss(each(output, part.target))
            for each in measures
        ]

    def _computed(self, phase: Phase, part: Batch) -> torch.Tensor:
        return checked_loss(self._module(phase.loss, part.inputs, part.target))

    def _spread(self) -> None:
        super()._spread()
        named = list(self.model.named_parameters())
        self._others = {
            phase: [parameter for name, parameter in named if not of.trains(name)]
            for phase, of in self._phases.items()
        }

    def reshard(self) -> None:
        """Free weights that were gathered from shards, before the shards are changed."""
        if self._layout.shards > 1:
            for module in set(self._computing.values()):
                reshard(module)

    def _over_workers(self) -> None:
        layout = self._layout
        if layout.replicas > 1 and layout.shards == 1:
            # Each phase waits for the gradients of its own parameters only.
            self._computing = {
                name: replicated(
                    _Replica(self.model, dict(self.trained_by(name))),
                    layout,
                    self._groups,
                    find_unused=True,
                )
                for name in self._phases
            }
            return
        root: nn.Module = _Loss(self.model)
        if layout.shards > 1 and self.trial.differentiates:
            raise PacelineError(
                f"shards={layout.shards} was given for a phase whose loss differentiates the model"
                " itself, as a gradient penalty does, but a backward frees the gathered weights",
                fix="use replicas instead of --shards",
            )
        if layout.shards > 1:
            root = sharded(
                root,
                layout,
                self._groups,
                self._clock,
                join=True,
                accumulates=self._accumulates,
                norms=self._scattered,
            )
        self._computing = dict.fromkeys(self._phases, root)


def check_forward(model: nn.Module) -> None:
    """Raise if a model has no forward, whose output metrics need; losses call its parts."""
    if type(model).forward is nn.Module.forward:
        name = type(model).__name__
        raise PacelineError(
            f"metrics measure the output of the model's forward, but {name} has none",
            fix=f"give {name} a forward, such as a GAN's generated samples, or no metrics",
        )


def _forward(model: nn.Module, inputs: Any, target: Any) -> Any:
    """Return the output of the model's own forward, for metrics."""
    del target
    return call(model, inputs)


class _Loss(nn.Module):
    """Calls a phase's loss, so that hooks on the forward see one call, whatever it computes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, loss: PhaseLoss, inputs: Any, target: Any) -> Any:
        """Return the loss of a micro-batch."""
        return loss(self.model, inputs, target)


class _Replica(nn.Module):
    """The same for DDP, which synchronizes all parameters that it finds: here one phase's."""

    def __init__(self, model: nn.Module, trained: Mapping[str, nn.Parameter]) -> None:
        super().__init__()
        self._hidden = (model,)  # in a tuple, whose parameters a module does not find
        self.trained = nn.ParameterList(trained.values())

    def forward(self, loss: PhaseLoss, inputs: Any, target: Any) -> Any:
        """Return the loss of a micro-batch."""
        (model,) = self._hidden
        return loss(model, inputs, target)


def check_phases_fit(layout: Layout, sync: SyncSettings) -> None:
    """Raise if a layout or a synchronization mode cannot train several phases."""
    divided = [name for name in ("tensor", "pipeline") if getattr(layout, name) > 1]
    if divided:
        raise PacelineError(
            f"{divided[0]}={getattr(layout, divided[0])} was given for a training with phases,"
            " whose losses call parts of the model themselves",
            fix="use replicas or --shards",
        )
    if layout.compile:
        raise PacelineError(
            "compile=true was given for a training with phases, whose losses call parts of it",
            fix="leave it out, and call torch.compile on these parts in model=…",
        )
    if not sync.by_engine:
        raise PacelineError(
            f"--sync {sync.mode} was given for a training with phases, which synchronize their"
            " gradients in every update",
            fix="leave --sync out: a plain all-reduce",
        )
