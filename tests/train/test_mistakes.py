"""What a user can get wrong in a Training, and what is said."""

import gc
import itertools
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

import paceline
from paceline.schedulers.task_placement import placement
from paceline.specs import PacelineError
from ranks import RankFailed, run_ranks
from train.trainings import FEATURES, classification


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([])


@pytest.mark.parametrize(
    ("changes", "problem", "fix"),
    [
        ({"data": TensorDataset(torch.zeros(0, 3), torch.zeros(0))}, "is empty", "check the path"),
        ({"data": Stream()}, r"\(Stream\) has no length", "map-style dataset"),
        ({"model": nn.Linear(2, 2)}, "Linear that is built already", "model=lambda: Linear"),
        ({"epochs": 1}, "both was given", "give one of them"),
        ({"steps": None}, "neither was given", "give one of them"),
        ({"batch": 0}, r"batch=0\) trains nothing", "at least 1"),
        ({"steps": 0}, r"steps=0\) trains nothing", "at least 1"),
    ],
)
def test_said_before_anything_runs(changes: dict[str, Any], problem: str, fix: str) -> None:
    with pytest.raises(PacelineError, match=problem) as error:
        classification(**changes)
    assert fix in str(error.value)


def test_a_loss_that_is_no_scalar() -> None:
    training = classification(loss=nn.CrossEntropyLoss(reduction="none"))
    with pytest.raises(PacelineError, match=r"a tensor of shape \(32,\), not a scalar"):
        paceline.fit(training)


def explode() -> None:
    steps = itertools.count(1)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mean = nn.functional.cross_entropy(output, target)
        bad = next(steps) >= 5 and placement().rank == 1
        return mean * float("nan") if bad else mean

    paceline.fit(classification(loss=loss))


def test_a_loss_that_becomes_nan_names_the_step_and_the_worker(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="the loss became nan at step 5 on worker 1") as error:
        run_ranks(explode, 2, tmp_path)
    assert "lower the learning rate" in str(error.value)


def test_srun_of_a_bare_script_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(PacelineError, match="4 copies of this script") as error:
        paceline.fit(classification())
    assert "paceline submit" in str(error.value)


def test_a_model_with_several_inputs_and_a_mapping() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(FEATURES, 5)

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(left) + self.layer(right)
            return out

    as_tuple = classification(model=Two, split=lambda batch: ((batch[0], batch[0]), batch[1]))
    as_mapping = classification(
        model=Two, split=lambda batch: ({"left": batch[0], "right": batch[0]}, batch[1])
    )
    assert paceline.fit(as_tuple).loss == paceline.fit(as_mapping).loss


def test_a_step_after_the_block() -> None:
    with paceline.start(classification(steps=1)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    with pytest.raises(PacelineError, match=r"used after the end of `with paceline\.start"):
        trainer.step(batch)


def let_go() -> bool:
    with paceline.start(classification(steps=2)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        parallel_model = weakref.ref(trainer._stepper.parallel_model)
        gc.disable()
        trainer.close()
        return parallel_model() is None


def test_nothing_but_the_groups_holds_a_group_at_the_end(tmp_path: Path) -> None:
    """Else taking it apart deadlocks now and then; this fails when a torch release adds a cycle."""
    assert run_ranks(let_go, 2, tmp_path) == [True, True]
