"""LARS and LAMB give the weights of one process in every layout.

Before, other packages' LAMB failed on shards, and both were refused on tensor-parallel slices.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from layouts.models import trained
from paceline.specs import Faults, Layout
from paceline.user.layerwise import LAMB, LARS
from ranks import new_run, run_ranks

STEPS = 100
OPTIMIZERS: dict[str, Any] = {
    "LARS": lambda parameters: LARS(parameters, lr=0.05, weight_decay=1e-3, trust=0.02),
    "LAMB": lambda parameters: LAMB(parameters, lr=0.002),
}
LAYOUTS = {
    "2 replicas": Layout(replicas=2),
    "3 shards": Layout(shards=3),
    "2 replicas x 2 shards": Layout(replicas=2, shards=2),
    "2 slices": Layout(tensor=2),
    "2 replicas x 2 slices": Layout(replicas=2, tensor=2),
    "2 shards x 2 slices": Layout(shards=2, tensor=2),
    "2 replicas x 2 shards x 2 slices": Layout(replicas=2, shards=2, tensor=2),
    "2 stages x 2 slices": Layout(pipeline=2, tensor=2),
    "2 stages x 2 shards": Layout(pipeline=2, shards=2),
}


def on_ranks(optimizer: str, steps: int, folder: str) -> dict[str, Any]:
    changes = {"optimizer": OPTIMIZERS[optimizer], "steps": steps}
    return trained("gpt", folder, changes)


def weights(optimizer: str, layout: Layout, folder: Path, steps: int = STEPS) -> torch.Tensor:
    folder.mkdir()
    # On a busy machine, a worker that is late is not lost.
    run = new_run(folder, layout.workers, layout, faults=Faults(regroup=False))
    arguments = (optimizer, steps, str(folder))
    found = run_ranks(on_ranks, layout.workers, folder, *arguments, run=run, seconds=280)[0]
    return torch.tensor(found["weights"])


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the difference of weights relative to the norm of the second."""
    return float((one - other).norm() / other.norm())


def test_slices_of_shards_have_the_weights_of_one_process(tmp_path: Path) -> None:
    alone = weights("LAMB", Layout(), tmp_path / "alone", steps=4)
    found = weights("LAMB", Layout(shards=2, tensor=2), tmp_path / "divided", steps=4)
    assert distance(found, alone) < 1e-6


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    folder = tmp_path_factory.mktemp("alone")
    return {name: weights(name, Layout(), folder / name) for name in OPTIMIZERS}


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_layout_has_the_weights_of_one_process(
    optimizer: str, layout: str, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    found = distance(weights(optimizer, LAYOUTS[layout], tmp_path / "divided"), alone[optimizer])
    print(f"{optimizer}, {layout}: {found:.1e}")
    assert found < 1e-5


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_it_is_the_formula_of_its_paper(optimizer: str) -> None:
    build, formula = OPTIMIZERS[optimizer], {"LARS": lars, "LAMB": lamb}[optimizer]
    generator = torch.Generator().manual_seed(0)
    shapes = {"weight": (5, 3), "bias": (5,), "kernel": (2, 3, 3), "unused": (3, 3)}
    weights = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    weights["zero"] = torch.zeros(4, 4, dtype=torch.float64)
    expected = {name: each.clone() for name, each in weights.items()}
    parameters = {name: nn.Parameter(each.clone()) for name, each in weights.items()}
    taken = build(list(parameters.values()))
    states: dict[str, dict[str, Any]] = {name: {} for name in weights}
    for _ in range(5):
        for name, parameter in parameters.items():
            if name == "unused":
                continue
            gradient = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.grad = gradient
            expected[name] = formula(expected[name], gradient, states[name])
        taken.step()
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-6, atol=1e-9)


def lars(weight: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
    rate, decay = 0.05, 1e-3 * (weight.ndim > 1)
    if weight.ndim > 1 and weight.norm() > 0:
        rate *= 0.02 * float(weight.norm() / (gradient.norm() + decay * weight.norm()))
    state["v"] = 0.9 * state.get("v", 0.0) + rate * (gradient + decay * weight)
    found: torch.Tensor = weight - state["v"]
    return found


def lamb(weight: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
    state["t"] = step = state.get("t", 0) + 1
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * gradient
    state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * gradient**2
    mean, square = state["m"] / (1 - 0.9**step), state["v"] / (1 - 0.999**step)
    update = mean / (square.sqrt() + 1e-6) + 0.01 * (weight.ndim > 1) * weight
    ratio = weight.norm() / update.norm() if weight.ndim > 1 and weight.norm() > 0 else 1.0
    found: torch.Tensor = weight - 0.002 * ratio * update
    return found
