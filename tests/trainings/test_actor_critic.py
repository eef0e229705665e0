"""Actor and critic: an optimizer each, on episodes that the actor has just played.

The critic learns first; the actor's loss uses the values of the updated critic. Every episode draws
from a generator of its own number, so that any worker plays it alike.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paceline
from paceline.comm.dtensor import full_tensor
from paceline.specs.even_division import slice_of
from trainings.comparison import (
    LAYOUTS,
    Trained,
    killed_and_resumed,
    seeded_model,
    under_paceline,
)

EPISODES, LENGTH, STEPS = 7, 6, 10


class ActorCritic(nn.Module):
    """A policy over two actions, and the value of a place on a line."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))


def played(weights: Mapping[str, torch.Tensor], numbers: range) -> Any:
    """Walk towards 0 side by side; return places, and the actions with their returns."""
    generators = [torch.Generator().manual_seed(number) for number in numbers]
    dice = torch.stack([torch.rand(LENGTH + 1, generator=each) for each in generators])
    actor = {name.removeprefix("actor."): each for name, each in weights.items() if "actor" in name}
    place, places, actions, rewards = 2 * dice[:, :1] - 1, [], [], []
    for moment in range(LENGTH):
        with torch.no_grad():
            logits = torch.func.functional_call(ActorCritic().actor, actor, (place,))
        right = (dice[:, moment + 1] < logits.softmax(1)[:, 1]).float()
        places.append(place)
        actions.append(right)
        place = place + 0.4 * right[:, None] - 0.2
        rewards.append(-place[:, 0].abs())
    returns = torch.stack(rewards, dim=1).flip(1).cumsum(1).flip(1)
    return torch.stack(places, dim=1), torch.stack([torch.stack(actions, dim=1), returns], dim=-1)


def critic_loss(model: nn.Module, places: Any, target: Any) -> torch.Tensor:
    """Estimate the return of each place."""
    assert isinstance(model, ActorCritic)
    return F.mse_loss(model.critic(places)[..., 0], target[..., 1])


def actor_loss(model: nn.Module, places: Any, target: Any) -> torch.Tensor:
    """Prefer the actions that did better than the critic expects."""
    assert isinstance(model, ActorCritic)
    actions, returns = target[..., 0].long(), target[..., 1]
    with torch.no_grad():
        advantage: torch.Tensor = returns - model.critic(places)[..., 0]
    logits: torch.Tensor = model.actor(places)
    chosen = logits.log_softmax(-1).gather(-1, actions[..., None])[..., 0]
    return -(chosen * advantage).mean()


def walking() -> paceline.Training:
    return paceline.Training(
        model=ActorCritic,
        data=None,
        phases={
            "critic": paceline.Phase(
                loss=critic_loss,
                optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.02),
                parameters="critic.*",
            ),
            "actor": paceline.Phase(
                loss=actor_loss,
                optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
                parameters="actor.*",
                clip=0.5,
            ),
        },
        batch=EPISODES,
        steps=STEPS,
    )


def play(trainer: paceline.Trainer) -> Iterator[int]:
    """Seven episodes per step do not divide among two workers."""
    while trainer.steps_left:
        begin = (trainer.steps - trainer.steps_left) * EPISODES
        mine = slice_of(EPISODES, trainer.workers, trainer.rank)
        weights = {
            name: full_tensor(each).cpu() for name, each in trainer.model.state_dict().items()
        }
        yield trainer.step(played(weights, range(begin + mine.start, begin + mine.stop))).step


@pytest.fixture(scope="module")
def plain() -> Trained:
    losses = []
    model = seeded_model(walking())
    assert isinstance(model, ActorCritic)
    criticizes = torch.optim.Adam(model.critic.parameters(), lr=0.02)
    acts = torch.optim.SGD(model.actor.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        numbers = range(step * EPISODES, (step + 1) * EPISODES)
        places, target = played(model.state_dict(), numbers)
        loss = critic_loss(model, places, target)
        model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        criticizes.step()
        losses.append(loss.item())
        model.zero_grad()
        actor_loss(model, places, target).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.actor.parameters(), 0.5)
        acts.step()
    return Trained.of(losses, model)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(walking, LAYOUTS[layout], tmp_path, loop=play).check_equals(plain)


@pytest.mark.parametrize("layout", ["2 replicas", "2 shards"])
def test_it_resumes_after_a_kill(layout: str, plain: Trained, tmp_path: Path) -> None:
    resumed = killed_and_resumed(walking, LAYOUTS[layout], tmp_path, killed_after=5, loop=play)
    resumed.check_equals(plain.after(4))
