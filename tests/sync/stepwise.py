"""What each rank has after every step, and what it has when it goes on from a checkpoint."""

import os
from pathlib import Path
from typing import Any

import torch

import paceline
from paceline.checkpoints.folder import Folder
from paceline.specs import Saving, SyncSettings
from ranks import run_ranks
from sync.simulated import planned
from train.trainings import classification

SAVE_EVERY = 5


def moved(weights: torch.Tensor, rank: int, apart: float) -> torch.Tensor:
    """Weights of its own for each rank to begin with."""
    noise = torch.randn(weights.shape, generator=torch.Generator().manual_seed(rank))
    return weights + apart * noise


def every_step(changes: dict[str, Any], apart: float = 0.0) -> list[list[float]]:
    """A rank's weights in a row after every step, and after the last one, what all have."""
    with paceline.start(classification(**changes)) as trainer:
        parameters = list(trainer.model.parameters())
        rank = int(os.environ["PACELINE_RANK"])
        # In place, as the engine does: what is exchanged is the memory of the parameters.
        with torch.no_grad():
            row = moved(torch.cat([each.flatten() for each in parameters]), rank, apart)
            sizes = [each.numel() for each in parameters]
            for each, part in zip(parameters, torch.split(row, sizes), strict=True):
                each.copy_(part.view_as(each))
        found = []
        for batch in trainer:
            trainer.step(batch)
            found.append(torch.cat([each.detach().flatten() for each in parameters]).tolist())
    return [*found, torch.cat([each.detach().flatten() for each in parameters]).tolist()]


def steps_on_ranks(
    folder: Path, workers: int, sync: SyncSettings, apart: float = 0.0, **changes: Any
) -> torch.Tensor:
    """Of every step, then of the end: a row of weights for each rank."""
    run = planned(folder, workers, sync)
    return _in_order(run_ranks(every_step, workers, folder, changes, apart, run=run))


def whole_and_resumed(
    folder: Path, workers: int, sync: SyncSettings, save_every: int = SAVE_EVERY, **changes: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The steps after the first checkpoint: in one go, and resumed from it."""
    run = planned(folder, workers, sync, saving=Saving(every_steps=save_every, keep_last=9))
    whole = _in_order(run_ranks(every_step, workers, folder, changes, run=run))
    checkpoints = Folder(run.checkpoints)
    for step in checkpoints.steps():
        if step > save_every:
            checkpoints.remove(step)
    run.job.model_copy(update={"first_generation": 1}).write(run.job_file)
    resumed = _in_order(run_ranks(every_step, workers, folder, changes, run=run))
    return whole[save_every:], resumed


def _in_order(found: list[list[list[float]]]) -> torch.Tensor:
    return torch.tensor(found).transpose(0, 1)
