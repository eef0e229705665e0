"""Evaluation over all workers: each sample once, whatever the layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from paceline.data.batches import Batches
from paceline.data.loader import load
from paceline.data.order import Sequential
from paceline.train.arrange import Arranged
from paceline.train.calls import call, checked_loss
from paceline.train.groups import Groups
from paceline.train.training import Measure, Training, samples_of
from paceline.train.weights import weight_of


@dataclass(frozen=True)
class Evaluation:
    """Means over a whole dataset, the same on every worker."""

    samples: int
    loss: float
    metrics: dict[str, float]


def evaluate(
    model: nn.Module,
    arranged: Arranged,
    training: Training,
    data: "Dataset[Any]",
    metrics: Mapping[str, Measure],
    groups: Groups,
) -> Evaluation:
    """The mean loss and metrics over a dataset; the model is as it was before when this returns."""
    place = groups.place
    samples = samples_of(data)
    batch = max(training.batch, place.workers)
    batches = Batches(
        order=Sequential(samples),
        batch=batch,
        steps=-(-samples // batch),
        workers=place.workers,
        rank=place.rank,
    )
    measures = {"loss": training.loss, **metrics}
    sums = torch.zeros(len(measures) + 1, device=groups.device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for share in load(
                data, batches, groups.device, split=training.split, processes=training.loaders
            ):
                with arranged.computing():
                    output = call(arranged, share.inputs)
                    means = [checked_loss(each(output, share.target)) for each in measures.values()]
                weight = weight_of(share, training.weight)
                one = torch.ones((), device=groups.device)
                counted = torch.stack([one, *means]).to(sums.dtype) * weight
                if share.samples:
                    sums += counted
    finally:
        model.train(was_training)
    weight, *totals = groups.sum(sums).tolist()
    means_by_name = {name: total / weight for name, total in zip(measures, totals, strict=True)}
    return Evaluation(samples=samples, loss=means_by_name.pop("loss"), metrics=means_by_name)
