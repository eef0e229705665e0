"""Reinforcement learning: PPO on a cart that is to stop at a goal. The model makes its own data.

Every episode draws from a generator of its own number, so that any number of workers plays the same
episodes. No simulator is needed.
"""

from typing import Any

import torch
from torch import nn

import paceline

EPISODES, LENGTH, UPDATES, ROUNDS = 32, 24, 4, 30
DISCOUNT, CLIP = 0.95, 0.2


class Policy(nn.Module):
    """Logits of the actions left, none and right, and the value of a state."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.actions, self.value = nn.Linear(width, 3), nn.Linear(width, 1)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.body(states)
        return self.actions(seen), self.value(seen)[..., 0]


def played(model: nn.Module, numbers: range, device: torch.device) -> tuple[Any, float]:
    """Play episodes side by side; return a batch and the mean reward."""
    generators = [torch.Generator().manual_seed(number) for number in numbers]
    start, noise = (
        torch.stack([torch.rand(size, generator=each) for each in generators]).to(device)
        for size in (2, LENGTH)
    )
    place, speed = start[:, 0] * 4 - 2, start[:, 1] - 0.5  # the goal is at 0
    columns: dict[str, list[torch.Tensor]] = {
        name: [] for name in ("state", "action", "log", "value", "reward")
    }
    for moment in range(LENGTH):
        state = torch.stack([place, speed], dim=1)
        with torch.no_grad():
            logits, value = model(state)
        odds = logits.softmax(1)
        action = (odds.cumsum(1) < noise[:, moment, None]).sum(1).clamp(max=2)
        speed = speed + 0.2 * (action - 1)
        place = place + 0.5 * speed
        reward = -(place.abs() + 0.1 * speed.abs())
        log = odds.log().gather(1, action[:, None])[:, 0]
        row = {"state": state, "action": action, "log": log, "value": value, "reward": reward}
        for name, column in columns.items():
            column.append(row[name])
    reward, value = (torch.stack(columns[name], dim=1) for name in ("reward", "value"))
    returns, later = torch.zeros_like(reward), torch.zeros_like(place)
    for moment in reversed(range(LENGTH)):
        later = 0.1 * reward[:, moment] + DISCOUNT * later  # values of about one
        returns[:, moment] = later
    target = {
        "action": torch.stack(columns["action"], dim=1),
        "log": torch.stack(columns["log"], dim=1),
        "advantage": returns - value,
        "return": returns,
    }
    return (torch.stack(columns["state"], dim=1), target), reward.mean().item()


def ppo_loss(output: tuple[torch.Tensor, torch.Tensor], target: Any) -> torch.Tensor:
    """The mean over episodes of the clipped objective, the value's error and the entropy."""
    logits, value = output
    logs = logits.log_softmax(-1)
    log = logs.gather(-1, target["action"][..., None])[..., 0]
    ratio = (log - target["log"]).exp()
    advantage = target["advantage"]
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    entropy = -(logs.exp() * logs).sum(-1)
    error = (value - target["return"]).square()
    loss: torch.Tensor = (0.5 * error - gain - 0.01 * entropy).mean()
    return loss


def training() -> paceline.Training:
    return paceline.Training(
        model=Policy,
        loss=ppo_loss,
        data=None,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=5e-3),
        batch=EPISODES,
        steps=ROUNDS * UPDATES,
        clip=1.0,
    )


def play() -> None:
    with paceline.start(training()) as trainer:
        while trainer.steps_left:
            played_rounds = (trainer.steps - trainer.steps_left) // UPDATES
            numbers = range(played_rounds * EPISODES, (played_rounds + 1) * EPISODES)
            mine = numbers[trainer.rank :: trainer.workers]
            batch, reward = played(trainer.model, mine, trainer.device)
            for _ in range(min(UPDATES, trainer.steps_left)):
                trainer.step(batch)
            trainer.print(f"round {played_rounds}: mean reward {reward:.3f}")


if __name__ == "__main__":
    play()
