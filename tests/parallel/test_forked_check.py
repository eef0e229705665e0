"""The check before a run leaves nothing behind in the worker, and does not hold it up."""

import time
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from paceline import PacelineError
from paceline.parallel.check import forked_check
from paceline.parallel.check.forked_check import refuse_differences
from paceline.specs import Layout
from parallel.test_check import Idle, contrastive
from train.trainings import CLASSES, FEATURES, classification

LAYOUT = Layout(replicas=2)


def on_cpu() -> tuple[torch.device, int]:
    return torch.device("cpu"), 2**40


class Counted(Dataset[Any]):
    """Counts its reads, as a stream would."""

    reads = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return torch.randn(FEATURES), index % CLASSES


def test_nothing_of_it_stays_in_the_worker() -> None:
    data, before = Counted(), torch.get_rng_state()
    notes = refuse_differences(classification(data=data, model=Idle), LAYOUT, on_cpu)
    assert [each.what for each in notes] == ["unused"]
    assert data.reads == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_a_problem_is_refused() -> None:
    with pytest.raises(PacelineError, match="depends on the others in its batch") as refused:
        refuse_differences(classification(loss=contrastive), LAYOUT, on_cpu)
    assert "paceline.gather" in refused.value.fix
    assert "--no-check" in refused.value.fix


def test_a_mistake_has_its_traceback_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PacelineError, match="the model's forward failed"):
        refuse_differences(classification(model=lambda: nn.Linear(3, 2)), LAYOUT, on_cpu)
    assert "Traceback" in capfd.readouterr().err


def test_it_is_given_up_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_check, "_MOST_SECONDS", 0.5)

    def slow() -> nn.Module:
        time.sleep(60)
        return Idle()

    begin = time.monotonic()
    (note,) = refuse_differences(classification(model=slow), LAYOUT, on_cpu)
    assert "given up" in note.text
    assert time.monotonic() - begin < 30


def test_large_weights_are_left_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_check, "_MOST_BYTES", 10)
    (note,) = refuse_differences(classification(model=Idle), LAYOUT, on_cpu)
    assert "not compared before a run" in note.text
