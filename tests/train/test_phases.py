"""What phases refuse, and what a trainer says about them."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paceline
from paceline import PacelineError, Phase, Training
from paceline.parallel.phased_model import check_phases_fit
from paceline.specs import Layout, SyncSettings
from paceline.sync.modes.allreduce import AllReduce
from trainings import gan


def phase(**changes: Any) -> Phase:
    settings: dict[str, Any] = {
        "loss": gan.generator_loss,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    }
    return Phase(**settings | changes)


def with_phases(**phases: Any) -> Training:
    return replace(gan.training(), phases=phases)


MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {
    "loss beside phases": (
        lambda: replace(gan.training(), loss=F.mse_loss),
        "phases=… together with loss=…",
        "give loss=… to each Phase",
    ),
    "clip beside phases": (
        lambda: replace(gan.training(), clip=1.0),
        "phases=… together with clip=…",
        "leave it out",
    ),
    "never due": (
        lambda: with_phases(one=phase(every=2), two=phase(every=3)),
        "no phase is due in every step",
        "every=1",
    ),
    "no phase at all": (with_phases, "no phase is due", "every=1"),
    "every": (lambda: phase(every=0), r"every=0\) is not a number of steps", "1 or more"),
    "name": (lambda: with_phases(**{"a/b": phase()}), "'a/b' has no usable name", "letters"),
    "not a phase": (lambda: with_phases(one=3), "phase 'one' is of type int", "paceline.Phase"),
    "built optimizer": (
        lambda: phase(optimizer=torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)),
        "a SGD that is built already",
        "optimizer=lambda parameters",
    ),
    "loss is no function": (lambda: phase(loss=3.0), "of type float", "loss=lambda"),
    "pattern": (
        lambda: paceline.fit(with_phases(one=phase(parameters=["decoder.*"]))),
        r"phase one trains no parameter: \['decoder.\*'\] matches 0",
        r"such as \"generator.\*\"",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_with_a_fix(name: str) -> None:
    mistaken, problem, fix = MISTAKES[name]
    with pytest.raises(PacelineError, match=problem) as error:
        mistaken()
    assert re.search(fix, str(error.value.fix))


@pytest.mark.parametrize(
    ("layout", "sync", "problem"),
    [
        (Layout(tensor=2), AllReduce(), "tensor=2 was given for a training with phases"),
        (Layout(pipeline=2), AllReduce(), "pipeline=2 was given for a training with phases"),
        (Layout(compile=True), AllReduce(), "compile=true was given for a training with phases"),
        (Layout(replicas=2), SyncSettings.parse("diloco"), "--sync diloco was given"),
        (Layout(replicas=2), AllReduce(compress="int8"), "--sync allreduce was given"),
    ],
)
def test_what_cannot_train_phases_is_refused(
    layout: Layout, sync: SyncSettings, problem: str
) -> None:
    with pytest.raises(PacelineError, match=problem):
        check_phases_fit(layout, sync)


def test_a_trainer_shows_every_phase() -> None:
    with paceline.start(replace(gan.training(), steps=2)) as trainer:
        first, second = (trainer.step(batch) for batch in trainer)
        assert trainer.optimizers.keys() == {"discriminator", "generator"}
        with pytest.raises(PacelineError, match="several optimizers: discriminator, generator"):
            _ = trainer.optimizer
        distance = {"distance": lambda output, target: (output - target).norm(dim=1).mean()}
        data = trainer.training.data
        with pytest.raises(PacelineError, match="but Gan has none"):
            trainer.evaluate(data, distance)
        assert trainer.evaluate(data).loss > 0
    assert first.losses.keys() == {"discriminator"}
    assert second.losses.keys() == {"discriminator", "generator"}
    assert second.loss is second.losses["discriminator"]


def test_random_numbers_differ_between_phases_and_repeat_with_the_seed() -> None:
    drawn: list[float] = []

    def loss(model: nn.Module, noise: Any, real: Any) -> torch.Tensor:
        drawn.append(torch.rand(()).item())
        return gan.generator_loss(model, noise, real)

    for _ in range(2):
        paceline.fit(replace(with_phases(one=phase(loss=loss), two=phase(loss=loss)), steps=2))
    assert len(set(drawn)) == 4
    assert drawn[:4] == drawn[4:]
