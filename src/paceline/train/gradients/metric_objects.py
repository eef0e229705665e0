"""Metrics that are objects with a state, such as those of torchmetrics, over all workers.

Each worker updates its own object with its samples. torchmetrics then merges the states of the
workers that divide the data, each by its own `dist_reduce_fx`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from paceline.data.loader import Batch
from paceline.specs import Layout, PacelineError
from paceline.user.data_checks import samples_of
from paceline.user.training import Measure
from paceline.user.validation import Metric, MetricObject, Validation


class MetricObjects:
    """The metrics of an evaluation that have a state, by name, empty at the beginning."""

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        layout: Layout,
        group: "dist.ProcessGroup | None",
        device: torch.device,
        *,
        samples: int,
    ) -> None:
        """`group`: the workers that divide the `samples`; None for a single one."""
        self._objects = {
            name: each for name, each in metrics.items() if isinstance(each, MetricObject)
        }
        self._group, self._device = group, device
        for name, each in self._objects.items():
            _check_mergeable(name, each, layout, samples)
            if isinstance(each, nn.Module):
                each.to(device)
            each.reset()

    def measures(self, parts: Sequence[Batch]) -> list[Measure]:
        """Return a function for each object that updates it with these micro-batches in turn."""
        return [self._updating(each, parts) for each in self._objects.values()]

    def results(self) -> dict[str, float]:
        """Merge the states of all workers and return the results; all workers call this."""
        return {name: self._result(name, each) for name, each in self._objects.items()}

    def _updating(self, metric: MetricObject, parts: Sequence[Batch]) -> Measure:
        upcoming = iter(parts)

        def update(output: Any, target: Any) -> torch.Tensor:
            del target
            part = next(upcoming)
            if part.samples:
                metric.update(*part.counted(output))
            return torch.zeros((), device=self._device)

        return update

    def _result(self, name: str, metric: MetricObject) -> float:
        for part in _with_states(metric):
            if self._group is not None:
                self._check_equal_lists(name, part)
            # Not torch's world: slices of a model have all seen the same samples.
            part.process_group = self._group
            part.distributed_available_fn = lambda: self._group is not None
        found = metric.compute()
        if not isinstance(found, torch.Tensor | float | int) or torch.as_tensor(found).numel() != 1:
            raise PacelineError(
                f"compute() of metric {name} returned a {type(found).__name__}, not one number",
                fix="let it average over classes, or give each number as a metric of its own",
            )
        return float(found)

    def _check_equal_lists(self, name: str, part: Any) -> None:
        """Raise if workers would send different numbers of tensors, and wait for each other."""
        sent = 0

        def count(tensor: torch.Tensor, **_: Any) -> list[torch.Tensor]:
            nonlocal sent
            sent += 1
            return [tensor]

        part.sync(dist_sync_fn=count, distributed_available=lambda: True)
        part.unsync()
        most_and_fewest = torch.tensor([sent, -sent], device=self._device)
        dist.all_reduce(most_and_fewest, dist.ReduceOp.MAX, self._group)
        most, fewest = most_and_fewest.tolist()
        if most != -fewest:
            raise PacelineError(
                f"metric {name} has a list of tensors with dist_reduce_fx=None, of which workers"
                f" have {-fewest} to {most}",
                fix='give a metric whose lists have dist_reduce_fx="cat", or a function',
            )


def check_metrics(validation: Validation | None, layout: Layout) -> None:
    """Raise if a validation has metrics whose states cannot be merged under a layout."""
    if validation is not None:
        for name, each in validation.metrics.items():
            if isinstance(each, MetricObject):
                _check_mergeable(name, each, layout, samples_of(validation.data))


def _with_states(metric: MetricObject) -> list[Any]:
    """Return a metric of torchmetrics, and those that it is composed of; none of other kinds."""
    modules = metric.modules() if isinstance(metric, nn.Module) else ()
    return [each for each in modules if hasattr(each, "distributed_available_fn")]


def _check_mergeable(name: str, metric: MetricObject, layout: Layout, samples: int) -> None:
    if layout.pipeline > 1:
        raise PacelineError(
            f"metric {name} is an object, but only the last of {layout.pipeline} pipeline stages"
            " would update it",
            fix="give a function of output and target, or train without --pipeline",
        )
    if layout.data_workers > 1 and not _with_states(metric):
        raise PacelineError(
            f"metric {name} is a {type(metric).__name__}, whose states of several workers only"
            " torchmetrics could merge",
            fix="give a torchmetrics.Metric, or a function of output and target",
        )
    if samples < layout.data_workers:
        raise PacelineError(
            f"metric {name} is an object, but {samples} samples leave some of the"
            f" {layout.data_workers} workers without a state to merge",
            fix="validate on more samples, or give a function of output and target",
        )
