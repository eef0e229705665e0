"""`python train.py`, or `paceline run train.py -n 2`."""

import task
import torch
from torch.nn import functional as F

import paceline


def training() -> paceline.Training:
    return paceline.Training(
        model=task.network,
        loss=F.cross_entropy,
        data=task.digits(),
        shuffle=task.SHUFFLE,
        optimizer=lambda parameters: torch.optim.AdamW(
            parameters, lr=task.RATE
        ),
        schedule=task.schedule,
        clip=1.0,
        batch=task.BATCH,
        epochs=task.EPOCHS,
        validation=paceline.Validation(
            task.digits(held_out=True), metrics={"accuracy": task.accuracy}
        ),
    )


if __name__ == "__main__":
    paceline.fit(training())
