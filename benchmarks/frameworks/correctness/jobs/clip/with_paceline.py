"""The training with Paceline: `paceline run with_paceline.py:recorded -n 3`."""

import torch
from torch.nn import functional as F

import paceline
from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, chosen, record
from examples.clip.train import Clip, pairs


def loss(output: tuple[torch.Tensor, ...], labels: torch.Tensor) -> torch.Tensor:
    image, name, scale = output
    logits = scale * paceline.gather(image) @ paceline.gather(name).T
    every = paceline.gather(labels)
    same = (every[:, None] == every).float()
    target = same / same.sum(1, keepdim=True)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def training() -> paceline.Training:
    return paceline.Training(
        model=Clip,
        loss=loss,
        data=chosen(pairs()),
        split=lambda batch: ((batch[0], batch[1]), batch[2]),
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
