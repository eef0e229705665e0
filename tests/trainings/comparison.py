"""Compare a training under Paceline with the same training written as a plain PyTorch loop."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional as F

import paceline
from paceline.checkpoints.folder import Folder
from paceline.comm.dtensor import full_tensor
from paceline.data.batches import Batches
from paceline.data.randomness import Seeded
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Layout, Run, Saving
from ranks import RankFailed, new_run, run_ranks
from train.trainings import recorded_losses

Describe = Callable[[], paceline.Training]
"""A function at the top of a test module, so that other processes can import it."""

Loop = Callable[[paceline.Trainer], Iterator[int]]
"""A training's own loop, such a function too; it yields the number of each step that it took."""

LAYOUTS = {
    "1 worker": Layout(),
    "2 replicas": Layout(replicas=2),
    "2 shards": Layout(shards=2),
}

TOLERANCE = 1e-5


def skip_if_torch_cannot_shard_branches(layout: Layout) -> None:
    """Skip a training whose samples leave parameters unused, where Paceline refuses its shards."""
    if layout.shards > 1 and not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        pytest.skip("torch 2.12 cannot shard parameters that some workers leave unused")


@dataclass(frozen=True)
class Trained:
    """The loss of every step, and the final weights and buffers by name."""

    losses: list[float]
    weights: dict[str, list[float]]

    @classmethod
    def of(cls, losses: list[float], model: nn.Module) -> "Trained":
        """Return the result of a training, with the whole of weights that are sharded."""
        state = {name: full_tensor(each) for name, each in model.state_dict().items()}
        return cls(losses, {name: each.flatten().tolist() for name, each in state.items()})

    def after(self, step: int) -> "Trained":
        """Return this result with the losses after a step only."""
        return replace(self, losses=self.losses[step:])

    def check_equals(self, other: "Trained", *, rel: float = TOLERANCE) -> None:
        """Fail where a loss or a weight differs from the other's."""
        assert self.losses == pytest.approx(other.losses, rel=rel)
        assert self.weights.keys() == other.weights.keys()
        for name, values in self.weights.items():
            assert values == pytest.approx(other.weights[name], rel=10 * rel, abs=rel), name


def plain_steps(training: paceline.Training) -> Iterator[list[Any]]:
    """Yield the samples of every global batch, in Paceline's order, for a plain loop.

    Samples that draw random numbers get those that Paceline gives them.
    """
    batches = Batches(
        order=training.sample_order(),
        batch=training.first_batch,
        steps=training.total_steps,
        workers=1,
        rank=0,
    )
    data = Seeded(training.data, training.seed)
    for step, indices in enumerate(batches):
        yield data.__getitems__((batches.epoch(step), indices))


def seeded_model(training: paceline.Training) -> nn.Module:
    """Build the model with the weights that Paceline starts from."""
    torch.manual_seed(training.seed)
    return training.model()


def every_batch(trainer: paceline.Trainer) -> Iterator[int]:
    """Take a step on every batch."""
    for batch in trainer:
        yield trainer.step(batch).step


Finish = Callable[[paceline.Trainer], Trained]
"""A function that returns the weights to compare, after the last step."""


def trained_weights(trainer: paceline.Trainer) -> Trained:
    """Return the trained weights, without losses."""
    return Trained.of([], trainer.model)


def stacked(samples: Iterable[Any]) -> list[torch.Tensor]:
    """Stack each field of samples that are tuples of tensors."""
    return [torch.stack(column) for column in zip(*samples, strict=True)]


def plain_loop(
    training: paceline.Training,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    loss_of: Callable[[nn.Module, list[Any]], torch.Tensor],
    *,
    steps: Iterable[list[Any]] | None = None,
    clip: float | None = None,
) -> Trained:
    """Train in plain PyTorch, in one process: on `loss_of(model, samples)` of every global batch.

    `steps`: the samples of each, by default in Paceline's order.
    """
    losses = []
    model = seeded_model(training)
    update = optimizer(model)
    for samples in plain_steps(training) if steps is None else steps:
        loss = loss_of(model, samples)
        update.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        update.step()
        losses.append(loss.item())
    return Trained.of(losses, model)


def classified(model: nn.Module, samples: Iterable[Any]) -> torch.Tensor:
    """Return the cross-entropy of a classifier on pairs of tensors."""
    inputs, target = stacked(samples)
    return F.cross_entropy(model(inputs), target)


def under_paceline(
    describe: Describe,
    layout: Layout,
    folder: Path,
    *,
    loop: Loop = every_batch,
    finish: Finish = trained_weights,
) -> Trained:
    """Train to the end under a layout."""
    trained: list[Trained] = run_ranks(
        _train, layout.workers, folder, describe, loop, None, finish, layout=layout
    )
    return trained[0]


def killed_and_resumed(
    describe: Describe,
    layout: Layout,
    folder: Path,
    *,
    killed_after: int,
    loop: Loop = every_batch,
    finish: Finish = trained_weights,
) -> Trained:
    """Kill all workers after a step, and resume in new processes from a checkpoint.

    The newest checkpoint is one step older, so that the resumed run repeats a step. `losses` are
    those of the resumed steps.
    """
    saved = killed_after - 1
    run = new_run(folder, layout.workers, layout, Saving(every_steps=saved))
    with pytest.raises(RankFailed, match="died"):
        run_ranks(_train, layout.workers, folder, describe, loop, killed_after, run=run)
    run.write_job(run.job.model_copy(update={"first_generation": 1}))
    trained: list[Trained] = run_ranks(
        _train, layout.workers, folder, describe, loop, None, finish, run=run
    )
    last = describe().total_steps - saved
    return replace(trained[0], losses=trained[0].losses[-last:])


def _train(
    describe: Describe,
    loop: Loop,
    killed_after: int | None = None,
    finish: Finish = trained_weights,
) -> Trained:
    with paceline.start(describe()) as trainer:
        for step in loop(trainer):
            if step == killed_after:
                _wait_for_checkpoint()
                os.kill(os.getpid(), signal.SIGKILL)
        trained = finish(trainer)  # gathers shards, so before the groups are gone
    return replace(trained, losses=recorded_losses())


def _wait_for_checkpoint() -> None:
    folder = run_folder()
    assert folder is not None
    deadline = time.monotonic() + 20
    while not Folder(Run(folder).checkpoints).steps():
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.01)
