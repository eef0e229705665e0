"""Models and options that the planner cannot compute with end in one sentence."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command import paceline
from paceline.launch.target import Target
from paceline.plan.inputs import PlanRequest
from paceline.plan.planner import make_plan
from paceline.specs import PacelineError, TrainingMistake

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
import paceline

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 4)
        self.lstm = nn.LSTM(16, 16, batch_first=True)

    def forward(self, x):
        x = self.first(x)
        {body}
        return self.last(x)

def training():
    return paceline.Training(
        model=Model,
        loss=nn.functional.cross_entropy,
        data=TensorDataset(torch.randn(64, 16), torch.zeros(64, dtype=torch.long)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=8,
        epochs=1,
    )
"""
COND = "x = torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,))"
WHILE = (
    "x = x + torch._higher_order_ops.while_loop(lambda i, x: i < 3,"
    " lambda i, x: (i + 1, x * 2.0), (torch.zeros((), dtype=torch.long), x.detach()))[1]"
)
SCAN = (
    "x = torch._higher_order_ops.scan(lambda c, e: (c + e, (c + e).clone()),"
    " torch.zeros_like(x), x.unsqueeze(0).repeat(3, 1, 1))[1][-1]"
)
FLEX = (
    "q = x.view(-1, 1, 1, 16).expand(-1, 1, 4, 16).contiguous();"
    " x = nn.attention.flex_attention.flex_attention(q, q, q)[:, 0, 0]"
)
IMPORTS = """
import torch._higher_order_ops.scan, torch._higher_order_ops.while_loop
import torch.nn.attention.flex_attention
"""
ON_ONE = PlanRequest(device="h100-80gb", nodes=(1, 2), batch=(64,))


def request(folder: Path, body: str) -> PlanRequest:
    file = folder / "train.py"
    file.write_text(IMPORTS + SCRIPT.replace("{body}", body))
    return replace(ON_ONE, train=Target(file))


@pytest.mark.slow
@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("body", [COND, WHILE, SCAN, FLEX], ids=["cond", "while", "scan", "flex"])
def test_a_higher_order_operator_is_named(tmp_path: Path, body: str, measure: bool) -> None:
    said = planned_or_refused(replace(request(tmp_path, body), measure=measure))
    assert any(name in said for name in ("cond", "while_loop", "scan", "flex_attention"))


def planned_or_refused(request: PlanRequest) -> str:
    """The remarks of the plan, or the error."""
    try:
        return " ".join(make_plan(request).answer.remarks)
    except PacelineError as error:
        return str(error)


def test_an_error_of_the_model_while_it_is_timed(tmp_path: Path) -> None:
    body = "assert x.is_meta or len(x) > 1 or type(x).__name__ == 'FakeTensor', 'one sample'"
    lstm = "; x = self.lstm(x.unsqueeze(1))[0][:, 0]"
    with pytest.raises(
        TrainingMistake, match=r"timing aten::\S+ on this machine failed at train.py:\d+"
    ):
        make_plan(request(tmp_path, body + lstm))


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": (10**7,)},
        {"batch": (2**60,)},
        {"steps": 10**40},
        {"budget": float("nan"), "steps": 10},
        {"budget": float("inf"), "steps": 10},
        {"deadline_seconds": 1e300, "steps": 10},
        {"slot_seconds": float("nan")},
    ],
)
def test_numbers_that_no_training_has(changes: dict[str, Any]) -> None:
    with pytest.raises(PacelineError, match=r"^--[a-z]+ \S+ is not from 0 to"):
        make_plan(replace(ON_ONE, model="llama3-8b", **changes))


@pytest.mark.parametrize("nodes", ["9" * 5000, "²", "1,0", "10000000"])
def test_node_counts_that_no_cluster_has(tmp_path: Path, nodes: str) -> None:
    words = ("plan", "--model", "llama3-8b", "--device", "h100-80gb", "--batch", "64")
    done = paceline(*words, "--nodes", nodes, folder=tmp_path, expect=2)
    assert "--nodes" in done.stderr
    assert "Traceback" not in done.stderr
