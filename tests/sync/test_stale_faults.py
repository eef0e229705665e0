"""Gradients of stale weights: workers that fail, and what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from paceline.specs import Layout, PacelineError, SyncSettings
from paceline.sync.modes.stale import Stale
from ranks import RankFailed, run_ranks
from sync.simulated import planned, trained
from train.trainings import classification

RECIPE: dict[str, Any] = {"steps": 12, "batch": 30}


def fail_at_the_fifth_step(changes: dict[str, Any], rank: int) -> str:
    """What this worker sees when one of them fails."""
    try:
        with paceline.start(classification(**changes)) as trainer:
            for batch in trainer:
                if trainer.step(batch).step == 5 and int(os.environ["PACELINE_RANK"]) == rank:
                    raise ValueError("broken")
    except (ValueError, RuntimeError, PacelineError) as error:
        return str(error)
    return "finished"


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        (0, "stale:staleness=1"),
        pytest.param(2, "stale:staleness=0,servers=2", marks=pytest.mark.nightly),
        pytest.param(2, "stale:servers=1", marks=pytest.mark.nightly),
    ],
)
def test_when_a_worker_fails_nobody_waits_for_ever(tmp_path: Path, rank: int, words: str) -> None:
    run = planned(tmp_path, 3, SyncSettings.parse(words))
    found = run_ranks(fail_at_the_fifth_step, 3, tmp_path, RECIPE, rank, run=run, seconds=20)
    assert found.pop(rank) == "broken"
    assert all(f"worker {rank} failed: broken" in words for words in found)


def test_what_cannot_be_served_is_said() -> None:
    with pytest.raises(PacelineError, match="servers=3"):
        SyncSettings.parse("stale:servers=3").check(Layout(replicas=2))
    with pytest.raises(PacelineError, match="fp16"):
        SyncSettings.parse("stale").check(Layout(replicas=2, precision="fp16"))
    with pytest.raises(PacelineError, match="tensor"):
        SyncSettings.parse("stale").check(Layout(replicas=2, tensor=2))


class Passing(torch.optim.Optimizer):
    """Has the groups of another optimizer."""

    def __init__(self, parameters: Any) -> None:
        self.inner = torch.optim.SGD(parameters, lr=0.2, momentum=0.9)

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)


class WithoutRate(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})


@pytest.mark.parametrize(
    ("optimizer", "words"), [(Passing, "wraps another optimizer"), (WithoutRate, "has no `lr`")]
)
def test_an_optimizer_that_servers_cannot_have_is_refused(
    tmp_path: Path, optimizer: Any, words: str
) -> None:
    with pytest.raises(RankFailed, match=words):
        trained(tmp_path, 1, Stale(), optimizer=optimizer)
