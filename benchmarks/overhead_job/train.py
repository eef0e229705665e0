"""The job of `overhead.py`, said for Paceline."""

from job import BATCH, STEPS, RandomText, network, next_byte_loss, optimizer

import paceline


def training() -> paceline.Training:
    return paceline.Training(
        model=network,
        loss=next_byte_loss,
        data=RandomText(),
        optimizer=optimizer,
        batch=BATCH,
        steps=STEPS,
    )
