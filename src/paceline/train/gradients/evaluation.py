"""Evaluation over all workers: each sample counts once, in any layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.data.loader import load
from paceline.data.order import Sequential
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.step.loss_weights import weight_of
from paceline.parallel.step.whole_batch import WholeBatch, gathering
from paceline.specs import Layout
from paceline.user.data_checks import samples_of
from paceline.user.training import Measure, Training


@dataclass(frozen=True)
class Evaluation:
    """Means over a whole dataset, equal on every worker."""

    samples: int
    loss: float
    metrics: dict[str, float]


def evaluate(
    parallel_model: ParallelModel,
    training: Training,
    data: "Dataset[Any]",
    metrics: Mapping[str, Measure],
    layout: Layout,
    groups: Groups,
) -> Evaluation:
    """Return the mean loss and metrics over a dataset, without changing the model."""
    samples = samples_of(data)
    batch = max(training.batch, layout.data_workers)
    batches = Batches(
        order=Sequential(samples),
        batch=batch,
        steps=-(-samples // batch),
        workers=layout.data_workers,
        rank=layout.data_rank(groups.placement.rank),
    )
    measures = {"loss": training.loss, **metrics}
    sums = torch.zeros(len(measures) + 1, device=groups.device)
    with torch.no_grad(), parallel_model.evaluating():
        for share in load(data, batches, groups.device, training.form, processes=training.loaders):
            parts = parallel_model.parts(share, batches.largest_local_batch(share.global_samples))
            with gathering(WholeBatch(share, batches, len(parts), parallel_model.data_group)):
                means = parallel_model.measure(parts, list(measures.values()))
            for part, found in zip(parts, means, strict=False):  # none before the last stage
                if part.samples:
                    weight = weight_of(part, training.weight)
                    sums += torch.cat([sums.new_ones(1), found.to(sums.dtype)]) * weight
    weight, *totals = groups.sum(sums).tolist()
    means_by_name = {name: total / weight for name, total in zip(measures, totals, strict=True)}
    return Evaluation(samples=samples, loss=means_by_name.pop("loss"), metrics=means_by_name)
