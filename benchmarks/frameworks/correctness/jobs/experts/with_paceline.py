"""The training with Paceline: `paceline run with_paceline.py:recorded -n 3`."""

import torch
from torch.nn import functional as F

import paceline
from benchmarks.frameworks.correctness.jobs.experts.data import digits
from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, chosen, record
from examples.experts.train import EXPERTS, Mixture


def loss(output: tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    logits, routes = output
    every = paceline.gather(routes)
    share = F.one_hot(every.argmax(-1), EXPERTS).float().mean(0)
    balance = EXPERTS * (share * every.mean(0)).sum()
    return F.cross_entropy(logits, labels) + 0.01 * balance


def training() -> paceline.Training:
    return paceline.Training(
        model=Mixture,
        loss=loss,
        data=chosen(digits()),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
        batch=BATCH,
        epochs=EPOCHS,
        shuffle=False,
    )


def recorded() -> None:
    with paceline.start(training()) as trainer:
        steps = [trainer.step(batch) for batch in trainer]
        record(trainer.model, len(steps))


if __name__ == "__main__":
    paceline.fit(training())
