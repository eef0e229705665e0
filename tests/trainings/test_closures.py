"""SAM and L-BFGS, which evaluate the loss several times per step, against a plain loop."""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from command import paceline as command
from paceline.specs import Layout, Regrouped, Run, event_adapter
from paceline.user.parameters import Parameters
from ranks import RankFailed
from trainings.comparison import (
    LAYOUTS,
    Trained,
    killed_and_resumed,
    plain_steps,
    seeded_model,
    under_paceline,
)

KILLED_IN_STEP = 4


class Sam(torch.optim.Optimizer):
    """Sharpness-aware minimization: takes another optimizer's step, with the gradient at the worst
    point nearby. It expects a gradient when it is called, as published ones do."""

    def __init__(self, parameters: Iterable[nn.Parameter], rho: float = 0.05) -> None:
        super().__init__(parameters, {"rho": rho})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        (group,) = self.param_groups
        trained = [each for each in group["params"] if each.grad is not None]
        norm = torch.stack([each.grad.norm() for each in trained]).norm()
        for parameter in trained:
            self.state[parameter]["before"] = parameter.clone()
            parameter.add_(parameter.grad * (group["rho"] / (norm + 1e-12)))
        loss = closure()
        for parameter in trained:
            parameter.copy_(self.state[parameter]["before"])
        self.base.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.base.param_groups = self.param_groups


def lbfgs(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(
        parameters, lr=0.5, max_iter=4, history_size=3, line_search_fn="strong_wolfe"
    )


def loss_of(model: nn.Module, inputs: Any, target: Any) -> torch.Tensor:
    return F.mse_loss(model(inputs), target)


def training(optimizer: Callable[..., torch.optim.Optimizer], batch: int) -> paceline.Training:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(90, 6, generator=generator)
    return paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)),
        data=TensorDataset(inputs, inputs.pow(2).sum(dim=1, keepdim=True)),
        phases={"weights": paceline.Phase(loss=loss_of, optimizer=optimizer, closure=True)},
        batch=batch,
        steps=8,
    )


def with_sam() -> paceline.Training:
    """Batches of 32 do not divide 90 samples: the last of an epoch has 26."""
    return training(Sam, batch=32)


def with_lbfgs() -> paceline.Training:
    return training(lbfgs, batch=90)


TRAININGS = {"SAM": (with_sam, 1e-5), "L-BFGS": (with_lbfgs, 1e-4)}
"""With the tolerance: L-BFGS divides by differences of gradients, which magnifies rounding."""


@pytest.fixture(scope="module")
def plain() -> dict[str, Trained]:
    return {name: trained_plainly(describe()) for name, (describe, _) in TRAININGS.items()}


def trained_plainly(training: paceline.Training) -> Trained:
    assert training.phases is not None
    losses, model = [], seeded_model(training)
    optimizer = training.phases["weights"].optimizer(Parameters(model.named_parameters()))
    for samples in plain_steps(training):
        inputs, target = (torch.stack(column) for column in zip(*samples, strict=True))

        def closure(inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            with torch.enable_grad():
                loss = loss_of(model, inputs, target)
                loss.backward()  # type: ignore[no-untyped-call]
            return loss

        evaluated = partial(closure, inputs, target)
        losses.append(evaluated().item())
        optimizer.step(evaluated)  # type: ignore[arg-type]
    return Trained.of(losses, model)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        (name, layout)
        for name in TRAININGS
        for layout in LAYOUTS
        if (name, layout) != ("L-BFGS", "2 shards")  # refused
    ],
)
def test_it_equals_a_plain_loop(
    name: str, layout: str, plain: dict[str, Trained], tmp_path: Path
) -> None:
    describe, rel = TRAININGS[name]
    under_paceline(describe, LAYOUTS[layout], tmp_path).check_equals(plain[name], rel=rel)


def test_lbfgs_is_refused_under_shards(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="PacelineError: LBFGS was given together with shards=2"):
        under_paceline(with_lbfgs, LAYOUTS["2 shards"], tmp_path)


@pytest.mark.timeout(120)
def test_a_worker_dies_between_two_evaluations(plain: dict[str, Trained], tmp_path: Path) -> None:
    words = ("run", f"{Path(__file__)}:struck", "-n", "2", "--save-every", "0", "--quiet")
    command(*words, folder=tmp_path, PYTHONPATH=os.pathsep.join(sys.path), VICTIM="1")
    (folder,) = (tmp_path / "runs").iterdir()
    lines = [line for file in Run.open(folder).events.iterdir() for line in file.open()]
    events = [event_adapter.validate_json(line) for line in lines]
    first = next(each for each in events if isinstance(each, Regrouped))
    assert (first.step, first.lost, first.source) == (KILLED_IN_STEP - 1, [1], "members")
    for name, weight in load_file(tmp_path / "weights.safetensors").items():
        expected = pytest.approx(plain["SAM"].weights[name], rel=1e-4, abs=1e-5)
        assert weight.flatten().tolist() == expected, name


def struck() -> None:
    """Train with SAM; the worker VICTIM dies in the second evaluation of a step."""
    described, done, evaluated = with_sam(), 0, [0] * 9

    def fatal(model: nn.Module, inputs: Any, target: Any) -> torch.Tensor:
        evaluated[done] += 1
        is_victim = os.environ["PACELINE_RANK"] == os.environ["VICTIM"]
        if done == KILLED_IN_STEP - 1 and evaluated[done] == 2 and is_victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return loss_of(model, inputs, target)

    assert described.phases is not None
    phase = replace(described.phases["weights"], loss=fatal)
    with paceline.start(described.replace(phases={"weights": phase})) as trainer:
        for batch in trainer:
            done = trainer.step(batch).step
        trainer.export(Path("weights.safetensors"))


@pytest.mark.parametrize("name", TRAININGS)
def test_it_resumes_after_a_kill(name: str, plain: dict[str, Trained], tmp_path: Path) -> None:
    describe, rel = TRAININGS[name]
    layout = Layout(replicas=2)
    killed_and_resumed(describe, layout, tmp_path, killed_after=5).check_equals(
        plain[name].after(4), rel=rel
    )
