"""Servers with a staleness bound, on real ranks, held against the algorithm in one process."""

import math
import os
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import paceline
from paceline.specs import Faults, Layout, Saving, SyncSettings
from paceline.sync.buckets import LocalParameter, even_buckets
from paceline.sync.modes.allreduce import AllReduce
from paceline.sync.modes.stale import Stale
from paceline.sync.modes.stale.hook import StaleWeights
from paceline.sync.modes.stale.server import Arrival
from ranks import go_on, run_ranks
from sync.simulated import Replicas, planned, trained
from sync.stepwise import whole_and_resumed
from train.trainings import CLASSES, FEATURES, classification, fit_and_read

STEPS = 12
RECIPE: dict[str, Any] = {"steps": STEPS, "batch": 30}

momentum = partial(torch.optim.SGD, lr=0.2, momentum=0.9)
decaying = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1)


def two_groups(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Whose second group is the last two parameters, so that no server has all of them."""
    every = list(parameters)
    groups: list[dict[str, Any]] = [
        {"params": every[:-2]},
        {"params": every[-2:], "lr": 0.05, "weight_decay": 0.1},
    ]
    return torch.optim.SGD(groups, lr=0.2, momentum=0.9)


def warming_up(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=STEPS)


class Slowed(nn.Sequential):
    """A model that takes its time on the last of the workers."""

    def forward(self, inputs: torch.Tensor) -> Any:
        if int(os.environ["PACELINE_RANK"]) + 1 == int(os.environ["PACELINE_WORKERS"]):
            time.sleep(0.03)
        return super().forward(inputs)  # type: ignore[no-untyped-call]


def slowed() -> nn.Module:
    return Slowed(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, CLASSES))


def fit_and_record(changes: dict[str, Any]) -> tuple[list[float], list[Arrival], set[str]]:
    """The final weights, what came to this rank's server, and the threads that are left."""
    before = {thread.name for thread in threading.enumerate()}
    with paceline.start(classification(**changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        mode = trainer._stepper.mode
        assert isinstance(mode, StaleWeights)
    weights = torch.cat([each.detach().flatten() for each in trainer.model.parameters()])
    left = {thread.name for thread in threading.enumerate()} - before
    return weights.tolist(), mode.arrivals, left


def synchronous(workers: int, **changes: Any) -> torch.Tensor:
    replicas = Replicas(workers, **RECIPE, **changes)
    make = replicas.training.schedule
    schedules = [make(each) for each in replicas.optimizers] if make else []
    for step in range(1, STEPS + 1):
        replicas.set_gradients(torch.stack(replicas.gradients(step)).mean(0))
        replicas.update()
        for schedule in schedules:
            schedule.step()
    return replicas.weights()[0]


def replayed(workers: int, arrivals: list[list[Arrival]], optimizer: Any) -> torch.Tensor:
    """The same gradients in the same order, each on the weights that it was computed on: arrivals
    at each server, which applies them to its part."""
    replicas = Replicas(workers, **RECIPE)
    model = replicas.models[0]
    held = [LocalParameter(name, each, each.detach()) for name, each in model.named_parameters()]
    rows = even_buckets(held, len(arrivals))
    sizes = [sum(shape.numel() for shape in row.shapes) for row in rows]
    parts = [nn.Parameter(part.clone()) for part in torch.split(replicas.weights()[0], sizes)]
    optimizers = [optimizer([part], lr=optimizer.keywords["lr"] / workers) for part in parts]
    versions = [[part.detach().clone()] for part in parts]
    seen_by = {
        (server, arrival.worker, arrival.step): arrival.version
        for server, queue in enumerate(arrivals)
        for arrival in queue
    }
    left = [list(queue) for queue in arrivals]
    while any(left):
        server = next(
            server
            for server, queue in enumerate(left)
            if queue
            and all(
                seen_by[other, queue[0].worker, queue[0].step] < len(versions[other])
                for other in range(len(parts))
            )
        )
        worker, step = left[server][0].worker, left[server].pop(0).step
        seen = [known[seen_by[at, worker, step]] for at, known in enumerate(versions)]
        replicas.set_weights([torch.cat(seen)] * workers)
        gradient = replicas.gradients(step)[worker]
        parts[server].grad = torch.split(gradient, sizes)[server]
        optimizers[server].step()
        versions[server].append(parts[server].detach().clone())
    return torch.cat([known[-1] for known in versions])


def leads(arrivals: list[Arrival], workers: int) -> list[int]:
    """How many steps ahead of the slowest each worker was when it began the step that arrived."""
    taken, found = [0] * workers, []
    for arrival in arrivals:
        found.append(taken[arrival.worker] - min(taken))
        taken[arrival.worker] = arrival.step
    return found


@pytest.mark.parametrize(
    ("workers", "servers", "changes"),
    [
        pytest.param(1, 1, {"optimizer": momentum}, marks=pytest.mark.nightly),
        pytest.param(2, 1, {"optimizer": momentum}, marks=pytest.mark.nightly),
        (2, 2, {"optimizer": decaying}),
        (3, 2, {"optimizer": two_groups, "schedule": warming_up}),
    ],
)
def test_without_staleness_steps_are_synchronous(
    tmp_path: Path, workers: int, servers: int, changes: dict[str, Any]
) -> None:
    sync = Stale(staleness=0, servers=servers)
    found = trained(tmp_path, workers, sync, **RECIPE, **changes)
    expected = synchronous(workers, **changes)
    for _, weights in found:
        torch.testing.assert_close(torch.tensor(weights), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("workers", "words", "optimizer"),
    [
        (3, "stale:staleness=1", momentum),
        pytest.param(2, "stale:servers=2", momentum, marks=pytest.mark.nightly),
        pytest.param(4, "stale:servers=2", decaying, marks=pytest.mark.nightly),
    ],
)
def test_each_gradient_is_applied_as_it_arrives(
    tmp_path: Path, workers: int, words: str, optimizer: Any
) -> None:
    sync = Stale.parse(words)
    found = trained(tmp_path, workers, sync, function=fit_and_record, optimizer=optimizer, **RECIPE)
    arrivals = [arrived for _, arrived, _ in found if arrived]
    assert len(arrivals) == sync.servers
    assert all(len(arrived) == workers * STEPS for arrived in arrivals)
    expected = replayed(workers, arrivals, optimizer)
    for weights, _, left in found:
        torch.testing.assert_close(torch.tensor(weights), expected, atol=1e-5, rtol=1e-5)
        assert not left


@pytest.mark.parametrize("staleness", [pytest.param(0, marks=pytest.mark.nightly), 2])
def test_nobody_is_further_ahead_of_the_slowest_than_allowed(
    tmp_path: Path, staleness: int
) -> None:
    sync = Stale(staleness=staleness)
    found = trained(tmp_path, 3, sync, function=fit_and_record, model=slowed, **RECIPE)
    assert max(leads(found[0][1], 3)) == staleness


def test_without_a_bound_a_slow_worker_is_left_behind(tmp_path: Path) -> None:
    found = trained(tmp_path, 3, Stale(), function=fit_and_record, model=slowed, **RECIPE)
    assert max(leads(found[0][1], 3)) > 3


@pytest.mark.nightly
def test_many_exchanges_beside_each_other(tmp_path: Path) -> None:
    """Gradients and answers between the same two workers are not mistaken for one another."""
    sync = Stale.parse("stale:staleness=3,servers=3")
    found = trained(tmp_path, 3, sync, function=fit_and_record, steps=200, batch=30)
    for weights, arrivals, _ in found:
        assert weights == found[0][0]
        for worker in range(3):
            steps = [arrival.step for arrival in arrivals if arrival.worker == worker]
            assert steps == list(range(1, 201))


def test_resumed_it_goes_on_as_it_would_have(tmp_path: Path) -> None:
    sync = Stale.parse("stale:staleness=0,servers=2")
    whole, resumed = whole_and_resumed(tmp_path, 3, sync, optimizer=decaying, **RECIPE)
    assert torch.equal(whole, resumed)


@pytest.mark.parametrize(
    "words",
    ["stale:staleness=1,servers=2", pytest.param("allreduce", marks=pytest.mark.nightly)],
)
def test_another_number_of_workers_goes_on(tmp_path: Path, words: str) -> None:
    """And in another mode, too: a checkpoint holds what the servers had."""
    changes: dict[str, Any] = {"batch": 30, "optimizer": decaying, "steps": STEPS}
    sync = Stale.parse("stale:staleness=0,servers=2")
    run = planned(tmp_path, 2, sync, saving=Saving(every_steps=STEPS))
    before = run_ranks(fit_and_read, 2, tmp_path, changes, run=run)
    layout = Layout(replicas=3)
    go_on(run, layout=layout, sync=SyncSettings.parse(words))
    after = run_ranks(fit_and_read, 3, tmp_path, changes | {"steps": 3 * STEPS}, run=run)
    losses = after[0][0]
    assert len(losses) == 3 * STEPS
    # A fresh start would begin with the first losses again.
    assert max(losses[STEPS : STEPS + 5]) < sum(losses[:5]) / 5 - 0.1
    assert sum(losses[-5:]) < sum(losses[STEPS - 5 : STEPS])
    assert after[0][1] == after[1][1] == after[2][1] != before[0][1]


def evaluate_and_export(changes: dict[str, Any], path: Path) -> float:
    training = classification(**changes)
    loss = math.nan
    with paceline.start(training) as trainer:
        for batch in trainer:
            if trainer.step(batch).step == STEPS - 3:
                loss = trainer.evaluate(training.data).loss
        trainer.export(path)
    return loss


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["shards", "tensor"])
def test_servers_of_what_a_worker_holds_of_a_model(tmp_path: Path, name: str) -> None:
    """In one go with the mean gradient, and by servers with a checkpoint in between."""
    layout = Layout(**{"replicas": 2, name: 2})
    plain = planned(tmp_path / "plain", 4, AllReduce(), layout)
    stale = Stale.parse("stale:staleness=0,servers=2")
    served = planned(tmp_path / "served", 4, stale, layout, Saving(every_steps=STEPS // 2))
    changes = RECIPE | {"optimizer": decaying}
    found, exported = [], tmp_path / "exported.safetensors"
    for run, steps, generation in ((plain, STEPS, 0), (served, STEPS // 2, 0), (served, STEPS, 1)):
        run.job.model_copy(update={"first_generation": generation}).write(run.job_file)
        arguments = (changes | {"steps": steps}, exported)
        losses = run_ranks(evaluate_and_export, 4, tmp_path, *arguments, run=run)
        found.append((losses, load_file(exported)))
    (plain_losses, plain_weights), _, (losses, weights) = found
    assert losses == pytest.approx(plain_losses, rel=1e-4)
    for key, tensor in plain_weights.items():
        torch.testing.assert_close(weights[key], tensor, atol=1e-5, rtol=1e-5)


def test_every_byte_is_counted(tmp_path: Path) -> None:
    sync = Stale.parse("stale:staleness=0")
    weights = 4 * (FEATURES * 32 + 32 + 32 * CLASSES + CLASSES)
    step_and_settings = 8 * (1 + len(["lr", "momentum", "dampening", "weight_decay"]))
    # One answers, each time with a number more, and says at the end what all have; the other sends
    # gradients and says goodbye.
    run = planned(tmp_path, 2, sync)
    run.plan.model_copy(update={"faults": Faults(copy_every=0, lease_seconds=20.0)}).write(
        run.plan_file
    )
    assert run_ranks(sent_bytes, 2, tmp_path, RECIPE, run=run) == [
        STEPS * (weights + 4) + weights,
        (STEPS + 1) * (weights + step_and_settings),
    ]


def sent_bytes(changes: dict[str, Any]) -> int:
    with paceline.start(classification(**changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    return trainer._stepper.mode.context.transport.sent_bytes
