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
from paceline.train.gradients.metric_objects import MetricObjects
from paceline.user.data_checks import samples_of
from paceline.user.training import Measure, Training
from paceline.user.validation import Metric, MetricObject


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
    metrics: Mapping[str, Metric],
    layout: Layout,
    groups: Groups,
) -> Evaluation:
    """Return the mean loss and metrics over a dataset, without changing the model."""
    samples = samples_of(data)
    batch = max(training.first_batch, layout.data_workers)
    batches = Batches(
        order=Sequential(samples),
        batch=batch,
        steps=-(-samples // batch),
        workers=layout.data_workers,
        rank=layout.data_rank(groups.placement.rank),
    )
    group = parallel_model.data_group
    objects = MetricObjects(metrics, layout, group, groups.device, samples=samples)
    measures: dict[str, Measure] = {"loss": training.loss}
    for name, metric in metrics.items():
        if not isinstance(metric, MetricObject):
            measures[name] = metric
    sums = torch.zeros(len(measures) + 1, device=groups.device)
    with torch.no_grad(), parallel_model.evaluating():
        for share in load(data, batches, groups.device, training.form, processes=training.loaders):
            parts = parallel_model.parts(share, batches.largest_local_batch(share.global_samples))
            with gathering(WholeBatch(share, batches, len(parts), group)):
                updates = objects.measures(parts)
                means = parallel_model.measure(parts, [*measures.values(), *updates])
            for part, found in zip(parts, means, strict=False):  # none before the last stage
                if part.samples:
                    weight = weight_of(part, training.weight)
                    row = torch.cat([sums.new_ones(1), found[: len(measures)].to(sums.dtype)])
                    sums += row * weight
    weight, *totals = groups.sum(sums).tolist()
    groups.health.check(groups.device)
    means_by_name = {name: total / weight for name, total in zip(measures, totals, strict=True)}
    loss = means_by_name.pop("loss")
    return Evaluation(samples, loss, metrics=means_by_name | objects.results())
