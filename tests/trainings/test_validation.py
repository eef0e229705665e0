"""Validate while training, keep the best model, and stop early."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.checkpoints.folder import Folder
from paceline.report import RunReader
from paceline.report.run.section import ReportedRun
from paceline.schedulers.task_placement import run_folder
from paceline.specs import PacelineError, Run, Saving
from ranks import RankFailed, new_run, run_ranks
from train.trainings import classification
from trainings.comparison import LAYOUTS, plain_steps, seeded_model

EVERY, PATIENCE, STEPS = 3, 2, 60


def divided() -> tuple[TensorDataset, TensorDataset]:
    """90 samples to train on, and 41, which no number of workers divides, to validate on."""
    inputs, target = classification(131).data.tensors
    return TensorDataset(inputs[:90], target[:90]), TensorDataset(inputs[90:], target[90:])


def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.argmax(1) == target).float().mean()


def training() -> paceline.Training:
    data, held_out = divided()
    return classification(
        data=data,
        steps=STEPS,
        average=0.5,
        validation=paceline.Validation(
            held_out,
            metrics={"accuracy": accuracy},
            every_steps=EVERY,
            best="accuracy",
            patience=PATIENCE,
        ),
    )


@dataclass(frozen=True)
class Validated:
    """What a validated training leaves: its results, its end, and the best model."""

    steps: int
    validated: list[int]
    losses: list[float]
    accuracies: list[float]
    best_step: int
    best: dict[str, list[float]]

    def check_equals(self, other: "Validated") -> None:
        assert (self.steps, self.validated) == (other.steps, other.validated)
        assert self.losses == pytest.approx(other.losses, rel=1e-5)
        assert self.accuracies == pytest.approx(other.accuracies, rel=1e-5)
        assert self.best_step == other.best_step
        for name, values in self.best.items():
            assert values == pytest.approx(other.best[name], rel=1e-4, abs=1e-5), name


@pytest.fixture(scope="module")
def plain() -> Validated:
    described = training()
    model = seeded_model(described)
    average = torch.optim.swa_utils.AveragedModel(
        model,
        multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5),  # type: ignore[no-untyped-call]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    validated, losses, waited = [], [], 0
    accuracies: list[float] = []
    best: dict[str, torch.Tensor] = {}
    best_step, (_, data) = 0, divided()
    for step, samples in enumerate(plain_steps(described), 1):
        inputs, target = (torch.stack(column) for column in zip(*samples, strict=True))
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        average.update_parameters(model)
        if step % EVERY == 0:
            with torch.no_grad():
                output = average(data.tensors[0])
            validated.append(step)
            losses.append(float(F.cross_entropy(output, data.tensors[1])))
            found = float(accuracy(output, data.tensors[1]))
            waited += 1
            if found > max(accuracies, default=-1):
                waited, best_step = 0, step
                best = {n: each.clone() for n, each in average.module.state_dict().items()}
            accuracies.append(found)
            if waited == PATIENCE:
                break
    values = {name: each.flatten().tolist() for name, each in best.items()}
    return Validated(step, validated, losses, accuracies, best_step, values)


def fit() -> Validated:
    """Train to the end, and return what the run's folder says afterwards."""
    done = paceline.fit(training())
    folder = run_folder()
    assert folder is not None
    run = Run(folder)
    metrics = RunReader(run).refresh().metrics
    best = load_file(folder / "best.safetensors")
    reached = metrics["validation/accuracy"]
    top = max(reached.value)
    return Validated(
        done.steps,
        reached.step,
        metrics["validation/loss"].value,
        reached.value,
        reached.step[reached.value.index(top)],
        {name: each.flatten().tolist() for name, each in best.items()},
    )


def test_the_training_stops_early(plain: Validated) -> None:
    assert PATIENCE * EVERY < plain.steps < STEPS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Validated, tmp_path: Path) -> None:
    workers = LAYOUTS[layout].workers
    found: list[Validated] = run_ranks(fit, workers, tmp_path, layout=LAYOUTS[layout])
    found[0].check_equals(plain)


def killed(after: int, saved: int) -> None:
    """Train, and die after a step, once the checkpoint of another one is complete."""
    folder = run_folder()
    assert folder is not None
    with paceline.start(training()) as trainer:
        for batch in trainer:
            if trainer.step(batch).step == after:
                deadline = time.monotonic() + 60
                while saved not in Folder(Run(folder).checkpoints).steps():
                    assert time.monotonic() < deadline, "no checkpoint was written"
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)


def test_best_and_patience_survive_a_kill(plain: Validated, tmp_path: Path) -> None:
    last = plain.validated[-2]  # one of the validations in vain is before the kill
    layout = LAYOUTS["2 shards"]
    run = new_run(tmp_path, 2, layout, Saving(every_steps=EVERY, keep_last=1))
    with pytest.raises(RankFailed, match="died"):
        run_ranks(killed, 2, tmp_path, last + 1, last, run=run)
    run.write_job(run.job.model_copy(update={"first_generation": 1}))
    found: list[Validated] = run_ranks(fit, 2, tmp_path, run=run)
    found[0].check_equals(plain)
    assert plain.best_step in Folder(run.checkpoints).steps(), "the best checkpoint is kept"
    state = RunReader(run).refresh()
    assert state.status == "finished"
    assert ReportedRun.read(run).to_dict()["finished_early"] is not None


def test_mistakes_are_named() -> None:
    _, data = divided()
    for settings, words in (
        ({"best": "f1"}, "names no metric"),
        ({"every_steps": 1, "every_epochs": 1}, "every_steps and every_epochs"),
        ({"patience": 0}, "no positive integer"),
        ({"metrics": {"a b": accuracy}}, "a metric named"),
    ):
        with pytest.raises(PacelineError, match=words):
            paceline.Validation(data, **settings)
    assert paceline.Validation(data).compared == ("min", "loss")
    minimal = paceline.Validation(data, metrics={"error": accuracy}, best="min error")
    assert minimal.compared == ("min", "error")
