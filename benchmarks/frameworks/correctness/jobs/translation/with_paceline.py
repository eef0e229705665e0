"""The training with Paceline: `paceline run with_paceline.py:recorded -n 3`."""

import torch
from torch.nn import functional as F

import paceline
from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, chosen, record
from examples.translation.train import PAD, Numbers, Translator, padded


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def training() -> paceline.Training:
    return paceline.Training(
        model=Translator,
        loss=loss,
        weight=lambda target: (target != PAD).sum(),
        data=chosen(Numbers()),
        collate=padded,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
        batch=BATCH,
        epochs=EPOCHS,
        clip=1.0,
        shuffle=False,
    )


def recorded() -> None:
    with paceline.start(training()) as trainer:
        steps = [trainer.step(batch) for batch in trainer]
        record(trainer.model, len(steps))


if __name__ == "__main__":
    paceline.fit(training())
