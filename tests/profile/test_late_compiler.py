"""Counting a model leaves torch's compiler unloaded, and loads it whole for code that uses it."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

COUNT = """
import json, sys
import torch
from torch import nn
from torch.utils.data import TensorDataset
from paceline.parallel.dry_run.model_profile import profile_of
from paceline.specs import Layout
from paceline.user.training import Training

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        {forward}
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)

data = TensorDataset(torch.zeros(8, 8), torch.zeros(8, 4))
training = Training(
    model=Model,
    loss=nn.functional.mse_loss,
    data=data,
    optimizer=torch.optim.AdamW,
    batch=8,
    steps=1,
)
for precision in ("bf16", "fp32"):
    profile = profile_of(training, "test", Layout(precision=precision))
compiler = sys.modules["torch._dynamo"]
found = {{
    "profile": profile.model_dump(mode="json"),
    "loaded": "torch._dynamo.convert_frame" in sys.modules,
    "real": [
        type(value).__name__
        for module in [*sys.modules.values()]
        if getattr(module, "__name__", "").startswith("torch.")
        for value in vars(module).values()
        if isinstance(value, torch.Tensor) and type(value) is not torch.Tensor
    ],
}}
from torch._dynamo import eval_frame
import torch._dynamo.backends.debugging as backends
found["one"] = compiler is torch._dynamo and backends is sys.modules[backends.__name__]
found["spec"] = eval_frame.__spec__.origin == eval_frame.__file__
found["once"] = eval_frame.OptimizedModule is torch._dynamo.OptimizedModule
compiled = torch.compile(Model(), backend="eager")
found["value"] = compiled(torch.ones(2, 8)).shape
checkpoint = torch.utils.checkpoint.checkpoint.__wrapped__
found["told"] = "__dynamo_disable" in vars(checkpoint)
print(json.dumps(found))
"""
USES = (
    "torch._dynamo.is_compiling()",
    "import torch._dynamo.eval_frame",
    "from torch._dynamo.decorators import mark_dynamic",
    "torch.compiler.is_compiling()",
)


@cache
def _found(forward: str) -> dict[str, Any]:
    program = COUNT.format(forward=forward)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_counting_leaves_the_compiler_unloaded() -> None:
    assert not _found("pass")["loaded"]


@pytest.mark.parametrize("use", ["pass", *USES])
def test_a_compiler_that_loads_late_is_whole(use: str) -> None:
    found = _found(use)
    assert found["loaded"] == (use in USES[:3])
    assert found["profile"] == _found("pass")["profile"]
    assert not [each for each in found["real"] if each == "FakeTensor"]
    assert found["one"]
    assert found["spec"]
    assert found["once"]
    assert found["value"] == [2, 4]
    assert found["told"]
