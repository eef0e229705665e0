"""`python train_llama.py`, or `paceline run train_llama.py -n 2`."""

import torch
from text_task import BATCH, RATE, STEPS, Prose, llama
from torch.optim.lr_scheduler import LinearLR

import paceline


def training() -> paceline.Training:
    return paceline.Training(
        model=llama,
        loss=lambda output, labels: output.loss,
        data=Prose(),
        split=lambda batch: (batch, batch["labels"]),
        shuffle=False,
        optimizer=lambda parameters: torch.optim.AdamW(
            parameters, lr=RATE, weight_decay=0.0
        ),
        schedule=lambda optimizer: LinearLR(
            optimizer, 1.0, 0.0, total_iters=STEPS
        ),
        clip=1.0,
        batch=BATCH,
        steps=STEPS,
    )


if __name__ == "__main__":
    paceline.fit(training())
