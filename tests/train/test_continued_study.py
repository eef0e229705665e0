"""Runs of a study that start from a checkpoint of another run: what changes, and what must not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.checkpoints.ledger import read_ledger
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Job, PacelineError, Run, SavedStep, Saving, Steps, event_adapter
from paceline.train.study_overrides import as_studied
from paceline.user.training import Training
from ranks import new_run, run_ranks
from train.trainings import CLASSES, FEATURES, classification

SAMPLES, STEP, POSITION = 75, 14, 75 + 4 * 8
"""Ten steps an epoch, the last of 3 samples: the checkpoint is in the middle of the second."""


class Watched(torch.optim.AdamW):
    """Remembers the settings of every update."""

    def step(self, closure: Any = None) -> Any:
        group = self.param_groups[0]
        seen.append((group["lr"], group["betas"][1]))
        return super().step(closure)


seen: list[tuple[float, float]] = []


class Projecting(nn.Module):
    """Has random numbers that no checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.projection: torch.Tensor
        self.register_buffer("projection", torch.randn(FEATURES, 9), persistent=False)
        self.layers = nn.Sequential(nn.Linear(9, 33), nn.Dropout(0.3), nn.Linear(33, CLASSES))

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layers(inputs @ self.projection)


def studied(**changes: Any) -> Training:
    settings: dict[str, Any] = {
        "samples": SAMPLES,
        "batch": 8,
        "epochs": 3,
        "steps": None,
        "model": Projecting,
        "optimizer": lambda given: Watched(given, lr=1e-2, betas=(0.9, 0.99)),
        "schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 16, gamma=0.5),
    }
    return classification(**settings | changes)


def trained() -> dict[str, Any]:
    """The recorded steps, samples and losses, the random buffer, and the settings of updates."""
    with paceline.start(studied()) as trainer:
        for batch in trainer:
            trainer.step(batch)
    folder = run_folder()
    assert folder is not None
    found: dict[str, Any] = {"steps": [], "samples": [], "loss": [], "settings": seen}
    for file in sorted(Run(folder).events.iterdir()):
        for line in file.read_text().splitlines():
            event = event_adapter.validate_json(line)
            if isinstance(event, Steps):
                found["steps"] += range(event.first, event.first + len(event.loss))
                found["samples"] += event.samples
                found["loss"] += event.loss
    found["projection"] = dict(trainer.model.named_buffers())["projection"].tolist()
    return found


def continued(tmp_path: Path, source: Run, workers: int = 1, **changes: Any) -> tuple[Any, Run]:
    """A run that starts from a checkpoint of another."""
    run = new_run(tmp_path, workers, saving=Saving(every_steps=0, ledger=True))
    before = SavedStep(run=source.place, checkpoints=source.checkpoint_place, step=STEP)
    job = {"starts_from": before, "equal_samples": True, **changes}
    run.write_job(run.job.model_copy(update=job))
    return run_ranks(trained, workers, tmp_path, run=run)[0], run


def test_only_what_comes_after_the_checkpoint_changes(tmp_path: Path) -> None:
    """A study could only start from the beginning."""
    source = new_run(tmp_path, 1, saving=Saving(every_steps=7, keep_last=9, ledger=True))
    (whole,) = run_ranks(trained, 1, tmp_path, run=source)

    same, run = continued(tmp_path, source)
    assert same["steps"] == list(range(STEP + 1, 31))
    assert same["loss"] == whole["loss"][STEP:]
    assert same["settings"] == whole["settings"][STEP:]
    assert [each.exact for each in read_ledger(run.ledger)] == [True, True]

    other, run = continued(tmp_path, source, seed_plus=3)
    assert other["samples"] == same["samples"]
    assert other["projection"] == whole["projection"]
    assert not set(other["loss"]) & set(same["loss"])
    assert [each.exact for each in read_ledger(run.ledger)] == [True, True]

    large, run = continued(tmp_path, source, 2, seed_plus=3, batch_times=4, scale_rate=True)
    # 43 samples are left of the second epoch; by the rules, rates double and betas are to the
    # fourth power. The schedule halves the rate after 16 steps of the training's own batch.
    assert large["samples"] == [32, 11, 32, 32, 11]
    assert sum(large["samples"]) == sum(same["samples"])
    rates, betas = zip(*large["settings"], strict=True)
    assert rates == pytest.approx([2e-2, 1e-2, 1e-2, 1e-2, 1e-2])
    assert betas == pytest.approx([0.99**4] * 5)
    epochs = read_ledger(run.ledger)
    assert [each.exact for each in epochs] == [True, True]
    assert epochs[0].steps == 4 + 2  # those before the checkpoint are taken as read

    naive, _ = continued(tmp_path, source, batch_times=4)
    assert naive["samples"] == large["samples"]
    assert naive["settings"][0] == pytest.approx((1e-2, 0.99))


def test_the_samples_left_are_shuffled_anew_and_later_epochs_have_the_seeds_order() -> None:
    job = Job(name="point", folder=Path("/"), python=Path("/bin/python"))
    before = SavedStep(run="r", checkpoints="c", step=STEP)
    own = studied()
    other = as_studied(own, job.model_copy(update={"starts_from": before, "seed_plus": 1}))
    order, was = other.sample_order(), own.sample_order()

    def at(given: Any, epoch: int, positions: range) -> list[int]:
        found: list[int] = given.at(epoch, positions).tolist()
        return found

    known, rest = range(POSITION - SAMPLES), range(POSITION - SAMPLES, SAMPLES)
    assert at(order, 0, range(SAMPLES)) == at(was, 0, range(SAMPLES))
    assert at(order, 1, known) == at(was, 1, known)
    assert at(order, 1, rest) != at(was, 1, rest)
    assert sorted(at(order, 1, rest)) == sorted(at(was, 1, rest))
    assert at(order, 1, range(SAMPLES))[20:50] == at(order, 1, range(20, 50))
    assert at(order, 2, range(SAMPLES)) == at(studied(seed=1).sample_order(), 2, range(SAMPLES))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tuned_at": 4}, "has rules for the batch already"),
        ({"epochs": 1}, "of step 14, but the training ends with step 10"),
        ({"shuffle": False}, r"Training\(shuffle=False\) decides on the order"),
        ({"data": None, "epochs": None, "steps": 30}, "the samples have no index"),
    ],
)
def test_refused(changes: dict[str, Any], said: str) -> None:
    before = SavedStep(run="r", checkpoints="c", step=STEP)
    job = Job(
        name="p", folder=Path("/"), python=Path("/bin/python"), starts_from=before, seed_plus=1
    )
    with pytest.raises(PacelineError, match=said):
        as_studied(studied(**changes), job)
