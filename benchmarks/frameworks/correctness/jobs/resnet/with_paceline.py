"""The training with Paceline:
`paceline run with_paceline.py:recorded -n 3 --batch-norm synchronized`.
"""

import torch
from torch.nn import functional as F

import paceline
from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, record
from benchmarks.frameworks.correctness.jobs.resnet.data import held_out, shapes
from examples.resnet.train import resnet


def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.argmax(1) == target).float().mean()


def training() -> paceline.Training:
    return paceline.Training(
        model=resnet,
        loss=F.cross_entropy,
        data=shapes(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        batch=BATCH,
        epochs=EPOCHS,
        shuffle=False,
        average=0.9,
        validation=paceline.Validation(held_out(), metrics={"accuracy": accuracy}),
    )


def recorded() -> None:
    with paceline.start(training()) as trainer:
        steps = [trainer.step(batch) for batch in trainer]
        found = trainer.evaluate(held_out(), metrics={"accuracy": accuracy})
        with trainer.averaged():
            record(trainer.model, len(steps), accuracy=found.metrics["accuracy"])


if __name__ == "__main__":
    paceline.fit(training())
