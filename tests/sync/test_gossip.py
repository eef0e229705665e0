"""Mixing with a few others, held against the same algorithm written down in one process."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import paceline
from paceline.specs import Layout, PacelineError, Saving, SyncSettings
from paceline.sync.modes.allreduce import AllReduce
from paceline.sync.modes.gossip import Gossip
from paceline.sync.modes.gossip.graphs import matrix
from ranks import go_on, run_ranks
from sync.simulated import Replicas, planned
from sync.stepwise import every_step, moved, steps_on_ranks, whole_and_resumed
from train.trainings import classification

STEPS = 12


def fit_and_export(changes: dict[str, Any], exported: Path) -> None:
    with paceline.start(classification(**changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export(exported)


def mixed(sync: Gossip, step: int, rows: list[torch.Tensor]) -> list[torch.Tensor]:
    if step % sync.every:
        return rows
    mixing = torch.tensor(matrix(sync.graph, len(rows), step // sync.every))
    return list(mixing @ torch.stack(rows))


def simulated(workers: int, sync: Gossip) -> torch.Tensor:
    """The weights after every step, and at the end their mean."""
    replicas = Replicas(workers, steps=STEPS, batch=30)
    found = []
    for step in range(1, STEPS + 1):
        before = replicas.weights()
        replicas.gradients(step)
        replicas.update()
        after = replicas.weights()
        if sync.overlap:
            rows = [
                mean + new - old
                for mean, new, old in zip(mixed(sync, step, before), after, before, strict=True)
            ]
        else:
            rows = mixed(sync, step, after)
        replicas.set_weights(rows)
        found.append(torch.stack(rows))
    return torch.stack([*found, found[-1].mean(0).expand_as(found[-1])])


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        (4, "gossip"),
        (3, "gossip:graph=random,overlap=1"),
        pytest.param(4, "gossip:graph=ring,overlap=1", marks=pytest.mark.nightly),
        pytest.param(2, "gossip:every=3", marks=pytest.mark.nightly),
    ],
)
def test_steps_are_those_of_the_algorithm(tmp_path: Path, workers: int, words: str) -> None:
    sync = Gossip.parse(words)
    found = steps_on_ranks(tmp_path, workers, sync, steps=STEPS, batch=30)
    torch.testing.assert_close(found, simulated(workers, sync), atol=1e-5, rtol=1e-5)


def test_without_learning_differences_shrink_as_the_matrices_say(tmp_path: Path) -> None:
    workers, sync = 3, Gossip.parse("gossip:graph=exponential,every=2")
    still = partial(torch.optim.SGD, lr=0.0)
    found = steps_on_ranks(tmp_path, workers, sync, 0.5, steps=8, batch=30, optimizer=still)
    common = Replicas(1, steps=8, batch=30).weights()[0]
    rows = torch.stack([moved(common, rank, 0.5) for rank in range(workers)])
    mean = rows.mean(0)
    first_distance = (rows - mean).norm().item()
    for step in range(1, 9):
        rows = torch.stack(mixed(sync, step, list(rows)))
        torch.testing.assert_close(found[step - 1], rows, atol=1e-6, rtol=1e-5)
    # A shift among three keeps half of every difference: |1 + exp(2πi/3)| / 2 = ½.
    assert (found[-2] - mean).norm().item() == pytest.approx(first_distance / 2**4, rel=1e-4)
    torch.testing.assert_close(found[-1], mean.expand(workers, -1), atol=1e-6, rtol=1e-5)


@pytest.mark.nightly
def test_between_two_replicas_of_shards_it_is_the_mean_gradient(tmp_path: Path) -> None:
    """Both have the mean after every step, and plain steps are linear in the gradient."""
    found = []
    for words in ("allreduce", "gossip"):
        exported = tmp_path / f"{words}.safetensors"
        run = planned(tmp_path, 4, SyncSettings.parse(words), Layout(replicas=2, shards=2))
        changes = {"steps": STEPS, "batch": 30}
        run_ranks(fit_and_export, 4, tmp_path, changes, exported, run=run)
        found.append(load_file(exported))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "words",
    [
        "gossip:graph=random",
        pytest.param("gossip:overlap=1,every=2", marks=pytest.mark.nightly),
    ],
)
def test_resumed_it_goes_on_as_it_would_have_and_twice_the_same(tmp_path: Path, words: str) -> None:
    whole, resumed = whole_and_resumed(tmp_path, 3, Gossip.parse(words), steps=STEPS, batch=30)
    assert torch.equal(whole, resumed)


def test_it_takes_up_what_another_mode_has_trained(tmp_path: Path) -> None:
    changes = {"steps": 4, "batch": 30}
    run = planned(tmp_path, 2, AllReduce(), saving=Saving(every_steps=4))
    trained = run_ranks(every_step, 2, tmp_path, changes, run=run)
    go_on(run, sync=Gossip())
    taken_up = run_ranks(every_step, 2, tmp_path, changes, run=run)
    assert taken_up == [[trained[0][-1]]] * 2  # nothing was left to do


def test_an_exchange_does_not_outlast_its_step() -> None:
    Gossip.parse("gossip:overlap=1").check(Layout(replicas=2))
    with pytest.raises(PacelineError, match="overlap=2"):
        Gossip.parse("gossip:overlap=2").check(Layout(replicas=2))


def test_it_mixes_in_every_step_unless_told_otherwise() -> None:
    assert Gossip.parse("gossip").every == 1
    assert Gossip.parse("gossip:every=3").every == 3
