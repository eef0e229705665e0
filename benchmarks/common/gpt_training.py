"""The GPT of the benchmarks as a Paceline training."""

import paceline
from benchmarks.common.gpt import BATCH, STEPS, RandomText, network, next_byte_loss, optimizer


def training(steps: int = STEPS) -> paceline.Training:
    """Describe the training; `paceline run` calls this."""
    return paceline.Training(
        model=network,
        loss=next_byte_loss,
        data=RandomText(),
        optimizer=optimizer,
        batch=BATCH,
        steps=steps,
    )
