"""Batches that the user's loop makes, such as the episodes of a policy."""

from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.data.collation.form import to_device
from paceline.data.loader import Batch
from paceline.specs import Layout, PacelineError
from paceline.user.training import Training


def made_batch(
    collated: Any, training: Training, layout: Layout, groups: Groups, *, replicas_differ: bool
) -> Batch:
    """Return a batch that this worker made, as its part of a global batch.

    All workers call this together. It waits for the sum of their samples, which may be unequal.
    """
    if layout.tensor * layout.pipeline > 1:
        raise PacelineError(
            f"this training makes its own data, but with tensor={layout.tensor} and"
            f" pipeline={layout.pipeline} several workers need the same samples",
            fix="use --replicas or --shards",
        )
    samples = training.form.counted(collated)
    if samples is None:
        raise PacelineError(
            f"the samples of a {type(collated).__name__} cannot be counted",
            fix="give Training(size=lambda batch: …)",
        )
    if samples < 1:
        raise PacelineError(
            "trainer.step was given a batch without samples",
            fix="make at least one sample on every worker",
        )
    counted = torch.tensor(samples, dtype=torch.int64, device=groups.device)
    # Local steps do not wait for other replicas.
    own_replica = replicas_differ and layout.replicas > 1
    total = groups.sum_in_replica(counted) if own_replica else groups.sum(counted)
    return Batch.of(
        to_device(collated, groups.device),
        training.form,
        samples=samples,
        global_samples=int(total) * (layout.replicas if own_replica else 1),
    )


def check_iterable(training: Training) -> None:
    """Raise if a training has no batches to iterate over."""
    if training.data is None:
        raise PacelineError(
            "Training(data=None) has no batches to iterate over",
            fix="make them in your own loop: `while trainer.steps_left: trainer.step(batch)`",
        )


def check_origin(batch: Any, training: Training) -> None:
    """Raise if a batch was made although the training has data, or the other way round."""
    if (training.data is None) == isinstance(batch, Batch):
        origin = "None" if training.data is None else "a dataset"
        raise PacelineError(
            f"trainer.step was given a {type(batch).__name__}, but the training's data is {origin}",
            fix="step the batches of `for batch in trainer`, or give data=None to make your own",
        )
