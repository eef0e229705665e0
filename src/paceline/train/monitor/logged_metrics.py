"""Metrics that the user's loop logs: averaged over the workers, without waiting for the device.

The window of steps carries them in its sum. Its size depends on the names, so the workers must log
the same names: each window also sums the bits of a hash of the names, which shows whether they do.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.specs import Logged
from paceline.train.monitor.logged_rows import (
    NOTHING,
    LoggedRow,
    Names,
    check_metric_name,
    check_same_names,
    means_of,
    name_bits,
    packed_rows,
    scalar,
)
from paceline.train.monitor.step_windows import Window


class LoggedMetrics:
    """The metrics that a worker has logged since its last step, and all names that it has used."""

    def __init__(self, groups: Groups, write_once: Callable[..., None]) -> None:
        """`write_once`: write an event on worker 0."""
        self._groups, self._write_once = groups, write_once
        self.names: Names = ()
        """All names so far, sorted."""
        self.agreed: Names = ()
        """The names that all workers are known to log."""
        self._weight = 1.0
        self._values: dict[str, float | torch.Tensor] = {}

    def log(self, metrics: Mapping[str, float | torch.Tensor]) -> None:
        """Add metrics; of two values of one name between two steps, the last counts."""
        new = metrics.keys() - set(self.names)
        for name in new:
            check_metric_name(name)
        if new:
            self.names = tuple(sorted({*self.names, *new}))
        for name, value in metrics.items():
            self._values[name] = scalar(name, value)

    def take(self, samples: int) -> LoggedRow:
        """Return what was logged since the last call; `samples`: size of the next local batch."""
        row = LoggedRow(self._weight, self._values) if self._values else NOTHING
        self._weight, self._values = float(samples), {}
        return row

    def learn(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Adopt the names in the reports of a new generation's workers; all call this alike."""
        self.names = self.agreed = tuple(
            sorted({name for each in reports for name in each["logged"]})
        )

    def means(self, window: Window) -> list[dict[str, float]]:
        """Return the means of a summed window's metrics; sum again if there are new names."""
        names = window.all_names
        check_same_names(window.name_bits(), self._groups.placement.workers, names)
        if names == window.names:
            return window.metrics() if names else []
        rows = window.steps.logged
        summed = self._groups.sum(packed_rows(rows, names, self._groups.device))
        self.agreed = names
        return means_of(summed, len(rows), names)

    def report_last(self, step: int) -> None:
        """Report the metrics that were logged after the last step. All workers call this."""
        row, names, device = self.take(0), self.names, self._groups.device
        bits = self._groups.sum(torch.tensor(name_bits(names), device=device)).tolist()
        check_same_names(bits, self._groups.placement.workers, names)
        if names:
            summed = self._groups.sum(packed_rows([row], names, device))
            self.write(step, means_of(summed, 1, names))

    def write(self, first: int, metrics: list[dict[str, float]]) -> None:
        """Write metrics; `first`: the step after which the first of them were logged."""
        found = {step: row for step, row in enumerate(metrics, first) if row}
        if found:
            names = sorted({name for row in found.values() for name in row})
            columns = {name: [row.get(name) for row in found.values()] for name in names}
            self._write_once(Logged, steps=list(found), metrics=columns)
