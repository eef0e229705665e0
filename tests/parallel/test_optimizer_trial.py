"""Which optimizers train divided parameters: the trial's verdict, and the table in the docs."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.comm.groups import Groups
from paceline.data.loader import Batch
from paceline.parallel.check.optimizer_trial import ELEMENTWISE, LAYERWISE, OptimizerTrial
from paceline.parallel.parallelize import parallelize
from paceline.parallel.part_sums import give_whole_norms
from paceline.specs import Layout, PacelineError
from ranks import run_ranks

PAGE = Path(__file__).parents[2] / "docs" / "optimizers.md"
LAYOUTS = {"shards": Layout(shards=2), "tensor": Layout(tensor=2)}
STEPS = 4


def of_transformers(parameters: Any) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    made: torch.optim.Optimizer = Adafactor(parameters)  # type: ignore[no-untyped-call]
    return made


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    name: lambda parameters, kind=kind: kind(parameters, lr=0.01)
    for name, kind in sorted(vars(torch.optim).items())
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "SparseAdam")  # which takes sparse gradients only
} | {
    "transformers' Adafactor": of_transformers,
    "paceline.LAMB": lambda parameters: paceline.LAMB(parameters, lr=0.01),
    "paceline.LARS": lambda parameters: paceline.LARS(parameters, lr=0.01, trust=1.0),
}


def training(
    optimizer: Callable[[Any], torch.optim.Optimizer], hidden: int = 8
) -> paceline.Training:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(16, 6, generator=generator)
    return paceline.Training(
        model=lambda: nn.Sequential(
            nn.Linear(6, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, 4, bias=False)
        ),
        loss=F.mse_loss,
        data=TensorDataset(inputs, inputs[:, :4].sin()),
        optimizer=optimizer,
        batch=16,
        steps=STEPS,
    )


def verdicts(layout: Layout) -> dict[str, tuple[str, bool]]:
    """Of each optimizer: why the trial refuses it, and whether its weights are right without it."""
    import transformers.optimization  # slow: other workers would take this one for lost

    del transformers
    found = {}
    with paceline.start(training(OPTIMIZERS["SGD"])) as trainer:
        groups = trainer._groups
        for name, build in OPTIMIZERS.items():
            found[name] = (
                refusal(OptimizerTrial(build, closure=name == "LBFGS"), layout, groups),
                is_right(build, layout, groups, closure=name == "LBFGS"),
            )
        for batch in trainer:
            trainer.step(batch)
    return found


def refusal(trial: OptimizerTrial, layout: Layout, groups: Groups) -> str:
    try:
        trial.check([("weight", nn.Parameter(torch.zeros(2, 2)))], layout, groups)
    except PacelineError as error:
        return str(error)
    return ""


def is_right(
    build: Callable[[Any], torch.optim.Optimizer], layout: Layout, groups: Groups, *, closure: bool
) -> bool:
    """Whether a real model has the same weights after some steps as on one worker."""
    described = training(build, hidden=7 if layout.shards > 1 else 8)  # unequal shards
    torch.manual_seed(described.seed)
    plain = described.model()
    divided = parallelize(described, layout, groups, largest_local_batch=16, trial=False)
    inputs, target = described.data[:]
    batch = Batch(inputs, target, 16, 16)

    def learn_plainly() -> torch.Tensor:
        loss = F.mse_loss(plain(inputs), target)
        torch.autograd.backward(loss)
        return loss.detach()

    def learn_divided() -> torch.Tensor:
        (loss,) = divided.learn([batch], lambda loss, number: loss)
        return loss

    steps(build(plain.parameters()), learn_plainly, closure=closure)
    optimizer = build(divided.parameters())
    give_whole_norms(optimizer, divided, layout, groups)
    try:
        steps(optimizer, learn_divided, closure=closure)
    except RuntimeError:
        return False
    found, expected = dict(divided.weights()), plain.state_dict()
    divided.close()
    # Muon computes in bf16, so its sums differ by rounding when they are divided.
    close = 1e-2 if build is OPTIMIZERS["Muon"] else 1e-5
    return all(
        torch.allclose(found[name], each, rtol=close, atol=close) for name, each in expected.items()
    )


def steps(
    optimizer: torch.optim.Optimizer, learn: Callable[[], torch.Tensor], *, closure: bool
) -> None:
    def evaluate() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            return learn()

    for _ in range(STEPS):
        evaluate()
        optimizer.step(*([evaluate] if closure else []))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, tuple[str, bool]]]:
    return {
        name: run_ranks(
            verdicts, 2, tmp_path_factory.mktemp(name), layout, layout=layout, seconds=200
        )[0]
        for name, layout in LAYOUTS.items()
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_trial_refuses_what_a_real_training_gets_wrong(
    layout: str, found: dict[str, dict[str, tuple[str, bool]]]
) -> None:
    wrong = {name for name, (_, right) in found[layout].items() if not right}
    refused = {name for name, (why, _) in found[layout].items() if why}
    assert refused == wrong
    assert not refused & {*ELEMENTWISE, *LAYERWISE}
    why, _ = found[layout]["Adafactor"]
    assert why.startswith(f"Adafactor was given together with {layout}=2: its ")
    assert all(name in why for name in (*ELEMENTWISE, *LAYERWISE))
    assert {"transformers' Adafactor", "LBFGS"} <= refused


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_table_in_the_docs_is_current(
    found: dict[str, dict[str, tuple[str, bool]]],
) -> None:
    rows = ["| optimizer | replicas | shards | tensor |", "|---|---|---|---|"]
    for name in OPTIMIZERS:
        cells = ["refused" if found[layout][name][0] else "yes" for layout in LAYOUTS]
        rows.append(f"| {name} | yes | {' | '.join(cells)} |")
    table = re.search(r"<!-- optimizers -->\n(.*?)\n<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert table is not None
    assert table[1].splitlines() == rows, "\n".join(rows)
