"""Mistakes in a training end in one sentence with a fix, and no success is claimed for them."""

import copy
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

import paceline
from command import paceline as command
from paceline import PacelineError, Training
from paceline.report import RunReader
from paceline.specs import Run
from paceline.user.script import training_of

INPUTS, TARGETS = torch.randn(40, 3), torch.randint(0, 2, (40,))


class Ragged(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> Any:
        return torch.zeros(number % 3 + 1), torch.tensor(0)


class NeedsMask(nn.Linear):
    def forward(self, inputs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(inputs * mask)


def training(**changes: Any) -> Training:
    fields: dict[str, Any] = {
        "model": lambda: nn.Linear(3, 2),
        "loss": F.cross_entropy,
        "data": TensorDataset(INPUTS, TARGETS),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch": 8,
        "steps": 4,
    }
    return Training(**(fields | changes))


MISTAKES: dict[str, tuple[Callable[[], Training], str, str]] = {
    "data loader": (
        lambda: training(data=DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=4)),
        "is a DataLoader",
        "data=loader.dataset, batch=4",
    ),
    "built optimizer": (
        lambda: training(optimizer=torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)),
        "is a SGD that is built already",
        "optimizer=lambda parameters: torch.optim.SGD",
    ),
    "list of optimizers": (
        lambda: training(optimizer=lambda given: [torch.optim.SGD(given, lr=0.1)]),
        "built a value of type list",
        "return one torch.optim.Optimizer",
    ),
    "unknown field": (lambda: training(epoch=3), "has no field epoch", "did you mean epochs="),
    "missing field": (
        lambda: Training(model=nn.Identity, loss=F.mse_loss),  # type: ignore[call-arg]
        "no data and no optimizer and no batch",
        "give data=",
    ),
    "batch is a function": (lambda: training(batch=lambda: 8), "of type function", "an integer"),
    "model is no function": (lambda: training(model="resnet50"), "of type str", "model=lambda"),
    "detached loss": (
        lambda: training(loss=lambda output, target: F.cross_entropy(output, target).detach()),
        "does not depend on any trainable parameter",
        "without detach()",
    ),
    "ragged samples": (lambda: training(data=Ragged()), "cannot be stacked", "collate="),
    "collate that drops samples": (
        lambda: training(collate=lambda samples: default_collate(samples[1:])),
        "was given 8 samples and returned a batch of 7",
        "size=lambda batch",
    ),
    "collate is no function": (
        lambda: training(collate=8),
        "of type int, which cannot be called",
        "lambda",
    ),
    "no GPU": (
        lambda: training(model=lambda: nn.Linear(3, 2).to("cuda")),
        r"building the training failed at test_mistakes.py:\d+: ",
        "check the model",
    ),
    "shapes": (
        lambda: training(model=lambda: nn.Linear(4, 2)),
        "the first step failed: RuntimeError: mat1 and mat2 shapes",
        "check that the model accepts",
    ),
    "target out of range": (
        lambda: training(data=TensorDataset(INPUTS, TARGETS + 5)),
        "the first step failed: IndexError: Target",
        "check that the model accepts",
    ),
    "forward with other arguments": (
        lambda: training(model=lambda: NeedsMask(3, 2)),
        "missing 1 required positional argument: 'mask'",
        "check that the model accepts",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_with_a_fix(name: str) -> None:
    mistaken, problem, fix = MISTAKES[name]
    with pytest.raises(PacelineError) as caught:
        paceline.fit(mistaken())
    assert re.search(problem, caught.value.problem)
    assert "\n" not in caught.value.problem
    assert fix in caught.value.fix
    assert caught.value.exit_code == 2


def test_a_function_with_parameters_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def training(lr, width=3): ...\n")
    with pytest.raises(PacelineError, match=r"training\(lr\) of train.py needs arguments"):
        training_of(tmp_path / "train.py", "training")


def test_an_error_after_the_first_step_is_the_users_own() -> None:
    calls = []

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise ZeroDivisionError
        return F.cross_entropy(output, target)

    with pytest.raises(ZeroDivisionError):
        paceline.fit(training(loss=loss))


def test_copies_of_a_training_need_no_fields() -> None:
    assert copy.copy(training()).batch == 8


def test_a_changed_training_is_checked_again() -> None:
    assert training().replace(batch=4).batch == 4
    with pytest.raises(PacelineError, match="batch=0"):
        training().replace(batch=0)
    with pytest.raises(PacelineError, match="no field bacth") as caught:
        training().replace(bacth=4)
    assert "batch" in str(caught.value.fix)


SCRIPT = """
import os, time, torch, paceline
from torch.utils.data import TensorDataset

def training():
    return paceline.Training(
        model=lambda: torch.nn.Linear(int(os.environ.get("WIDTH", "3")), 1),
        loss=torch.nn.functional.mse_loss,
        data=TensorDataset(torch.randn(40, 3), torch.randn(40, 1)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=8, steps=6,
    )

def no_step():
    with paceline.start(training()) as trainer:
        for batch in trainer:
            pass

def early():
    with paceline.start(training()) as trainer:
        for batch in trainer:
            if trainer.step(batch).step == 2:
                break

class Unused(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    def forward(self, inputs):
        return self.used(inputs)

def unused():
    import dataclasses
    return dataclasses.replace(training(), model=Unused)

if __name__ == "__main__":
    if "SLOW" in os.environ:
        open("started", "w").close()
        time.sleep(60)
    found = globals()[os.environ.get("FUNCTION", "training")]()
    if found is not None:
        paceline.fit(found)
"""


def _python(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_python_train_py_shows_no_traceback(tmp_path: Path) -> None:
    done = _python(tmp_path, WIDTH="4")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: the first step failed")
    done = _python(tmp_path, FUNCTION="no_step")
    assert (done.returncode, "took no step" in done.stderr) == (2, True)
    done = _python(tmp_path, FUNCTION="early")
    assert (done.returncode, done.stderr.strip()) == (0, "stopped early at 2 of 6 steps")


def test_ctrl_c_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        SCRIPT.replace("import os,", "import paceline, os,").replace(
            "if __name__", "paceline.Training\nif __name__"
        )
    )
    with subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=os.environ | {"SLOW": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == "interrupted\n"
    assert process.returncode == 130


def _run(folder: Path, function: str, *, expect: int, **environment: Any) -> tuple[Run, str]:
    (folder / "train.py").write_text(SCRIPT)
    done = command(
        "run", f"train.py:{function}", "-n", "2", folder=folder, expect=expect, **environment
    )
    (run,) = (folder / "runs").iterdir()
    return Run.open(run), done.stderr


def test_a_run_with_a_mistake(tmp_path: Path) -> None:
    run, said = _run(tmp_path, "training", expect=2, WIDTH="4")
    assert "RuntimeError: mat1 and mat2 shapes" in said
    assert "Traceback" not in said
    logs = "".join(each.read_text() for each in run.logs.iterdir())
    assert "Traceback" in logs, "the log has the whole story"


def test_a_run_without_a_step(tmp_path: Path) -> None:
    run, said = _run(tmp_path, "no_step", expect=2)
    assert "the training loop took no step" in said
    assert RunReader(run).refresh().status == "failed"


def test_a_loop_that_is_left_early_is_no_finished_run(tmp_path: Path) -> None:
    run, said = _run(tmp_path, "early", expect=3)
    assert "stopped early at 2 of 6 steps" in said
    assert RunReader(run).refresh().status == "stopped"


def test_unused_parameters_are_no_mistake(tmp_path: Path) -> None:
    run, _ = _run(tmp_path, "unused", expect=0)
    assert RunReader(run).refresh().status == "finished"
