"""Replicas that are themselves spread over workers agree as single workers do."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

import paceline
from layouts import models
from paceline.comm.dtensor import full_tensor
from paceline.specs import Layout, SyncSettings
from ranks import RankFailed, run_ranks
from sync.simulated import planned

pytestmark = pytest.mark.slow

WORDS = {
    "shards": "diloco:every=3,fragments=2,overlap=1",
    "slices": "diloco:every=3,fragments=2,overlap=1",
    "stages": "diloco:every=3,overlap=1",
}
ISLANDS = {
    "shards": Layout(replicas=2, shards=2),
    "slices": Layout(replicas=2, tensor=2),
    "stages": Layout(replicas=2, pipeline=2),
}


def result(folder: Path, layout: Layout, words: str) -> dict[str, Any]:
    run = planned(folder, layout.workers, SyncSettings.parse(words), layout)
    # Shares of every batch that two and four workers divide alike.
    changes = {"data": Subset(models.data_for("gpt"), range(48)), "steps": 10}
    arguments = ("gpt", str(folder), changes)
    found: dict[str, Any] = run_ranks(
        models.trained, layout.workers, folder, *arguments, run=run, seconds=100
    )[0]
    return found


@pytest.mark.parametrize(
    "name",
    ["shards", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("slices", "stages"))],
)
def test_islands_take_steps_of_their_own(name: str, tmp_path: Path) -> None:
    single_workers = result(tmp_path / "single", Layout(replicas=2), WORDS[name])
    found = result(tmp_path / "islands", ISLANDS[name], WORDS[name])
    assert found["losses"] == pytest.approx(single_workers["losses"], rel=1e-4)
    assert found["weights"] == pytest.approx(single_workers["weights"], rel=1e-4, abs=1e-5)
    assert found["evaluation"].loss == pytest.approx(single_workers["evaluation"].loss, rel=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["stages", "slices"])
def test_islands_send_codes_of_their_gradients(name: str, tmp_path: Path) -> None:
    """16 bits lose little: the islands stay close to those that lose nothing, and are not equal."""
    plain = result(tmp_path / "plain", ISLANDS[name], "allreduce")
    found = result(tmp_path / "coded", ISLANDS[name], "allreduce:compress=bf16")
    assert found["weights"] != plain["weights"]
    assert found["weights"] == pytest.approx(plain["weights"], rel=1e-2, abs=2e-3)


@pytest.mark.parametrize(
    "words",
    [
        "diloco:every=4,fragments=2",
        pytest.param("allreduce:compress=int8", marks=pytest.mark.nightly),
    ],
)
def test_stages_that_share_a_weight_must_find_the_same_for_it(words: str, tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="stages of TiedGPT share a weight"):
        result(tmp_path, ISLANDS["stages"], words)


def trained_and_evaluated(evaluates: bool) -> Any:
    """Train with local steps, and evaluate between two of them or not; return the weights."""
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(32, 8, generator=generator), torch.randn(32, 2, generator=generator)
    )
    training = paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)),
        loss=F.mse_loss,
        data=data,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=16,
        steps=6,
    )
    with paceline.start(training) as trainer:
        for batch in trainer:
            if trainer.step(batch).step == 2 and evaluates:
                trainer.evaluate(data)
        weights = [full_tensor(each).flatten() for each in trainer.model.parameters()]
    return torch.cat(weights).tolist()


def test_shards_train_on_with_their_own_weights_after_an_evaluation(tmp_path: Path) -> None:
    """An evaluation uses the weights that replicas share, and FSDP2 keeps what it gathered."""
    layout = Layout(replicas=2, shards=2)
    without, found = (
        run_ranks(
            trained_and_evaluated,
            layout.workers,
            tmp_path / str(evaluates),
            evaluates,
            run=planned(tmp_path / str(evaluates), 4, SyncSettings.parse("local:every=4"), layout),
        )[0]
        for evaluates in (False, True)
    )
    assert found == without
