"""Metrics of a run over its steps: those of `trainer.log`, and of evaluations."""

from bisect import bisect_right
from dataclasses import dataclass, field

from paceline.observe.metric_names import evaluated_metrics
from paceline.specs import Evaluated, Logged


@dataclass
class Series:
    """The values of one metric, in step order."""

    step: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """Append a value; later steps that are present are dropped."""
        self.cut(step - 1)
        self.step.append(step)
        self.value.append(value)

    def cut(self, step: int) -> None:
        """Drop all values after `step`."""
        kept = bisect_right(self.step, step)
        del self.step[kept:], self.value[kept:]


@dataclass
class MetricSeries:
    """All metrics of a run by name; those of evaluations begin with `validation/`."""

    series: dict[str, Series] = field(default_factory=dict)

    def add(self, event: Logged | Evaluated) -> None:
        """Append the metrics of an event."""
        if isinstance(event, Evaluated):
            for name, value in evaluated_metrics(event).items():
                self._of(name).add(event.step, value)
            return
        for name, values in event.metrics.items():
            for step, logged in zip(event.steps, values, strict=False):
                if logged is not None:
                    self._of(name).add(step, logged)

    def cut(self, step: int) -> None:
        """Drop all values after `step`."""
        for each in self.series.values():
            each.cut(step)

    def extend(self, later: "MetricSeries") -> None:
        """Append the values of a later start."""
        for name, each in later.series.items():
            for step, value in zip(each.step, each.value, strict=True):
                self._of(name).add(step, value)

    def _of(self, name: str) -> Series:
        return self.series.setdefault(name, Series())
