"""Reinforcement learning: the batches of a step are episodes that the model has just played.

Every episode draws from a generator of its own number, so that any worker plays it alike.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.checkpoints.ledger import read_ledger
from paceline.comm.dtensor import full_tensor
from paceline.specs import Saving
from paceline.specs.even_division import slice_of
from ranks import RankFailed, new_run, run_ranks
from trainings.comparison import (
    LAYOUTS,
    Trained,
    killed_and_resumed,
    seeded_model,
    under_paceline,
)

EPISODES, LENGTH, SIDE = 9, 6, 5


def policy() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


def played(weights: dict[str, torch.Tensor], number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Walk on a line towards a goal; return the states, and the actions with their returns."""
    generator = torch.Generator().manual_seed(number)
    place, goal = torch.randint(0, SIDE, (2,), generator=generator).tolist()
    states, actions, rewards = [], [], []
    for _ in range(LENGTH):
        state = torch.tensor([place / SIDE, goal / SIDE])
        with torch.no_grad():
            logits = torch.func.functional_call(policy(), weights, (state,))
        right = torch.rand((), generator=generator) < logits.softmax(0)[1]
        states.append(state)
        actions.append(int(right))
        place = min(SIDE, max(0, place + (1 if right else -1)))
        rewards.append(-abs(place - goal) / SIDE)
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    return torch.stack(states), torch.stack([torch.tensor(actions).float(), returns], dim=1)


def policy_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean over episodes of REINFORCE's loss."""
    actions, returns = target[..., 0].long(), target[..., 1]
    chosen = logits.log_softmax(-1).gather(-1, actions[..., None])[..., 0]
    return -(chosen * returns).sum(1).mean()


def walking() -> paceline.Training:
    return paceline.Training(
        model=policy,
        loss=policy_loss,
        data=None,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.02),
        batch=EPISODES,
        steps=8,
    )


def batch_of(weights: dict[str, torch.Tensor], numbers: range) -> Any:
    states, targets = zip(*(played(weights, number) for number in numbers), strict=True)
    return torch.stack(states), torch.stack(targets)


def play(trainer: paceline.Trainer) -> Iterator[int]:
    """Nine episodes per step do not divide among two workers."""
    while trainer.steps_left:
        begin = (trainer.steps - trainer.steps_left) * EPISODES
        mine = slice_of(EPISODES, trainer.workers, trainer.rank)
        weights = {name: full_tensor(each) for name, each in trainer.model.state_dict().items()}
        yield trainer.step(batch_of(weights, range(begin + mine.start, begin + mine.stop))).step


def mistaken(trainer: paceline.Trainer) -> Iterator[int]:
    yield from (trainer.step(batch).step for batch in trainer)


def play_once() -> None:
    with paceline.start(walking()) as trainer:
        assert list(play(trainer)) == list(range(1, 9))


@pytest.fixture(scope="module")
def plain() -> Trained:
    training, losses = walking(), []
    model = seeded_model(training)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(training.total_steps):
        numbers = range(step * EPISODES, (step + 1) * EPISODES)
        inputs, target = batch_of(model.state_dict(), numbers)
        loss = policy_loss(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return Trained.of(losses, model)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(walking, LAYOUTS[layout], tmp_path, loop=play).check_equals(plain)


def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    resumed = killed_and_resumed(
        walking, LAYOUTS["2 replicas"], tmp_path, killed_after=5, loop=play
    )
    resumed.check_equals(plain.after(4))


def test_the_ledger_counts_what_was_made(tmp_path: Path) -> None:
    run = new_run(tmp_path, 2, saving=Saving(every_steps=0, ledger=True))
    run_ranks(play_once, 2, tmp_path, run=run)
    (record,) = read_ledger(run.ledger)
    assert (record.by, record.made, record.exact) == ("made", 8 * EPISODES, True)


def test_there_is_nothing_to_iterate_over(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="make them in your own loop"):
        under_paceline(walking, LAYOUTS["1 worker"], tmp_path, loop=mistaken)
