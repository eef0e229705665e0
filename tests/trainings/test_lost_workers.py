"""A worker dies in the middle of a step or a validation; the others go on as if it never was."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import paceline
from command import paceline as command
from paceline.report import RunReader
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Layout, Regrouped, Run, event_adapter
from ranks import run_ranks
from trainings import test_validation
from trainings.comparison import under_paceline
from trainings.test_buffers import codebook
from trainings.test_contrastive import clip
from trainings.test_experts import mixture

pytestmark = pytest.mark.slow

TRAININGS = {"gather": clip, "buffers": codebook, "branches": mixture}
VICTIM, KILLED_IN_STEP = 1, 4


def die() -> None:
    if os.environ["PACELINE_RANK"] == str(VICTIM):
        os.kill(os.getpid(), signal.SIGKILL)


def struck() -> None:
    """Train; the victim dies when it computes the loss of a step, and the others wait for it."""
    described, done = TRAININGS[os.environ["KIND"]](), 0

    def fatal(output: Any, target: Any) -> torch.Tensor:
        if done == KILLED_IN_STEP - 1:
            die()
        return described.loss(output, target)

    with paceline.start(described.replace(loss=fatal)) as trainer:
        for batch in trainer:
            done = trainer.step(batch).step
        trainer.export(Path("weights.safetensors"))


def run_struck(function: str, folder: Path, kind: str = "") -> Run:
    """Run a function of this module on three workers; return the run, which has regrouped."""
    words = ("run", f"{Path(__file__)}:{function}", "-n", "3", "--save-every", "0", "--quiet")
    command(*words, folder=folder, PYTHONPATH=os.pathsep.join(sys.path), KIND=kind)
    (found,) = (folder / "runs").iterdir()
    run = Run.open(found)
    lines = [line for file in run.events.iterdir() for line in file.open()]
    events = [event_adapter.validate_json(line) for line in lines]
    first = next(each for each in events if isinstance(each, Regrouped))
    assert (first.workers, first.lost, first.source) == (2, [VICTIM], "members")
    return run


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("gather", marks=pytest.mark.nightly),
        "buffers",
        pytest.param("branches", marks=pytest.mark.nightly),
    ],
)
def test_a_worker_dies_in_a_step(kind: str, tmp_path: Path) -> None:
    alone = under_paceline(TRAININGS[kind], Layout(), tmp_path / "alone")
    state = RunReader(run_struck("struck", tmp_path, kind)).refresh()
    assert state.status == "finished"
    later = slice(KILLED_IN_STEP - 1, None)  # unreported steps before it have the survivors' loss
    assert state.loss[later] == pytest.approx(alone.losses[later], rel=1e-4)
    for name, weight in load_file(tmp_path / "weights.safetensors").items():
        expected = pytest.approx(alone.weights[name], rel=1e-3, abs=1e-5)
        assert weight.flatten().tolist() == expected, name


def struck_in_validation() -> None:
    """Train; the victim dies when it measures the second validation."""
    described = test_validation.training()
    assert described.validation is not None
    validated = 0

    def fatal(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if validated == 1:
            die()
        return test_validation.accuracy(output, target)

    validation = paceline.Validation(
        described.validation.data, metrics={"accuracy": fatal}, every_steps=test_validation.EVERY
    )
    with paceline.start(described.replace(steps=12, validation=validation)) as trainer:
        for batch in trainer:
            validated = trainer.step(batch).step // test_validation.EVERY


def validate() -> dict[str, list[float]]:
    """Train without a fault, and return what the run's folder says of its validations."""
    described = test_validation.training()
    assert described.validation is not None
    validation = paceline.Validation(
        described.validation.data,
        metrics={"accuracy": test_validation.accuracy},
        every_steps=test_validation.EVERY,
    )
    paceline.fit(described.replace(steps=12, validation=validation))
    folder = run_folder()
    assert folder is not None
    return validations(Run(folder))


def validations(run: Run) -> dict[str, list[float]]:
    metrics = RunReader(run).refresh().metrics
    return {name: each.value for name, each in metrics.items() if name.startswith("validation/")}


@pytest.mark.timeout(240)
def test_a_worker_dies_in_a_validation(tmp_path: Path) -> None:
    (alone,) = run_ranks(validate, 1, tmp_path / "alone")
    run = run_struck("struck_in_validation", tmp_path)
    found = validations(run)
    assert found.keys() == alone.keys()
    assert [len(values) for values in found.values()] == [4, 4]
    for name, values in found.items():
        assert values == pytest.approx(alone[name], rel=1e-5), name
