"""The check before a run leaves nothing behind in the worker, and does not hold it up.

Each in a new process: where there are accelerators, torch computes no gradients in a process that
was forked from one that has.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from paceline.parallel.check import forked_check
from paceline.parallel.check.forked_check import refuse_differences
from paceline.specs import Layout
from paceline.specs.finding import Finding
from parallel.test_check import Idle, contrastive
from ranks import RankFailed, run_ranks
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


def checked(changes: dict[str, Any], limits: dict[str, float] | None = None) -> list[Finding]:
    """Check a classification with these changes, and with other limits of the check."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (limits or {}).items():
            patch.setattr(forked_check, name, value)
        return refuse_differences(classification(**changes), LAYOUT, on_cpu)


def watched() -> None:
    data, before = Counted(), torch.get_rng_state()
    assert [each.what for each in checked({"data": data, "model": Idle})] == ["unused"]
    assert data.reads == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_of_it_stays_in_the_worker(tmp_path: Path) -> None:
    run_ranks(watched, 1, tmp_path)


def test_a_problem_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="depends on the others in its batch") as refused:
        run_ranks(checked, 1, tmp_path, {"loss": contrastive})
    assert "paceline.gather" in str(refused.value)
    assert "--no-check" in str(refused.value)


def too_narrow() -> nn.Module:
    return nn.Linear(3, 2)


def logged(log: Path) -> None:
    with log.open("wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    checked({"model": too_narrow})


def test_a_mistake_has_its_traceback_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(RankFailed, match="the model's forward failed"):
        run_ranks(logged, 1, tmp_path, log)
    assert "Traceback" in log.read_text()


def slow() -> nn.Module:
    time.sleep(60)
    return Idle()


def test_it_is_given_up_when_it_takes_long(tmp_path: Path) -> None:
    begin = time.monotonic()
    ((note,),) = run_ranks(checked, 1, tmp_path, {"model": slow}, {"_MOST_SECONDS": 0.5})
    assert "given up" in note.text
    assert time.monotonic() - begin < 30


def test_large_weights_are_left_to_the_command(tmp_path: Path) -> None:
    ((note,),) = run_ranks(checked, 1, tmp_path, {"model": Idle}, {"_MOST_BYTES": 10})
    assert "not compared before a run" in note.text
