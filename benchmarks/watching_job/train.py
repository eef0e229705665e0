"""The job of `watching.py`: that of `overhead.py`, watched or, to know what that costs, not."""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "overhead_job"))
from job import BATCH, RandomText, network, next_byte_loss, optimizer

import paceline
from paceline.train.watching import Watching


def _unwatched(self: Watching, step: int, arranged: Any, learn: Any) -> Any:
    del self, step, arranged
    return learn()


def training() -> paceline.Training:
    if os.environ["WATCHING"] == "off":
        Watching.learned = _unwatched  # type: ignore[method-assign]
        Watching.stepped = lambda self, step: None  # type: ignore[method-assign]
    return paceline.Training(
        model=network,
        loss=next_byte_loss,
        data=RandomText(),
        optimizer=optimizer,
        batch=BATCH,
        steps=int(os.environ["STEPS"]),
    )
