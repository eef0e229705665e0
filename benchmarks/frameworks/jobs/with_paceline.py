"""The job with Paceline: `paceline run with_paceline.py -n 2`."""

import paceline
from benchmarks.frameworks.jobs.gpt import BATCH, Text, network, next_byte_loss, optimizer
from benchmarks.frameworks.jobs.meter import Meter


def training() -> None:
    given = paceline.Training(
        model=network,
        loss=next_byte_loss,
        data=Text(),
        optimizer=optimizer,
        batch=BATCH,
        epochs=1,
        shuffle=False,
    )
    with paceline.start(given) as trainer:
        meter = Meter()
        for batch in trainer:
            done = trainer.step(batch)
            meter.step(done.loss.item())
        meter.end()
