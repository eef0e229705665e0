"""Progress of a run, and windows of steps that are being summed over the workers."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from paceline.specs import Part
from paceline.train.monitor.logged_rows import NAME_BITS, NOTHING, LoggedRow, Names, means_of

WINDOW_SECONDS = 0.5
LONGEST_WINDOW_STEPS = 200
OTHERS = 5
"""Number of values that are summed beside the losses and their weights."""


@dataclass
class Progress:
    """Progress of the run, equal on every worker."""

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    loss: float = math.nan
    """Mean loss of the last reported step over its global batch."""
    stopped: bool = False
    """Whether a worker was asked to stop, so that all stop at this step."""
    requeue: bool = False
    """Whether the reason is the time limit, so that the job is requeued and the run continues."""
    save_agreed: bool = False
    """Whether a checkpoint is due, by worker 0's clock."""
    regroup: bool = False
    """Whether a worker waits to join, so that all regroup after this step."""


@dataclass
class Unreported:
    """This worker's steps that are not summed over the workers yet, one entry per step."""

    losses: list[torch.Tensor] = field(default_factory=list)
    weights: list[float | torch.Tensor] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    """Samples in each step's global batch."""
    seconds: list[float] = field(default_factory=list)
    logged: list[LoggedRow] = field(default_factory=list)
    """Metrics that were logged before each step, after the previous one."""

    def __len__(self) -> int:
        return len(self.losses)

    def add(
        self,
        loss: torch.Tensor,
        weight: float | torch.Tensor,
        samples: int,
        seconds: float,
        logged: LoggedRow = NOTHING,
    ) -> None:
        """Append a step."""
        self.losses.append(loss)
        self.weights.append(weight)
        self.samples.append(samples)
        self.seconds.append(seconds)
        self.logged.append(logged)

    def weights_on(self, device: torch.device) -> torch.Tensor:
        """Return the weights as a tensor, with at most one copy from the host to the device."""
        if any(isinstance(each, torch.Tensor) for each in self.weights):
            return torch.stack(
                [torch.as_tensor(each, dtype=torch.float32, device=device) for each in self.weights]
            )
        host = torch.tensor(self.weights, dtype=torch.float32)
        return host.to(device, non_blocking=True)  # does not wait for the device

    def put_before(self, earlier: "Unreported") -> None:
        """Prepend earlier steps whose sum was interrupted."""
        for mine, theirs in zip(self._columns(), earlier._columns(), strict=True):
            mine[:0] = theirs

    def forget(self, count: int) -> None:
        """Drop the first `count` steps, which have been reported."""
        for column in self._columns():
            del column[:count]

    def _columns(self) -> "tuple[list[Any], ...]":
        return self.losses, self.weights, self.samples, self.seconds, self.logged


@dataclass(frozen=True)
class Window:
    """A window of steps that is being summed over the workers."""

    work: "dist.Work | None"
    packed: torch.Tensor
    """Weighted losses, their weights, the same of logged metrics, `OTHERS` more values, and the
    bits of the metrics' names."""
    losses: torch.Tensor
    """This worker's losses: one value or one row per step, 0 where the weight is 0."""
    steps: Unreported
    parts: dict[Part, float]
    """This worker's step breakdown, in seconds."""
    names: Names = ()
    """Names of the logged metrics whose values are summed."""
    all_names: Names = ()
    """Names that this worker had logged by then; their bits are summed."""

    def means(self, before: float) -> list[float]:
        """Return each step's mean loss over its global batch, after the sum completes.

        If no survivor has a step's loss, repeat the loss of the previous step, initially `before`.
        """
        found = []
        for loss, weight in self._sums():
            before = loss / weight if weight else before
            found.append(before)
        return found

    def first_non_finite(self, means: list[float]) -> int | None:
        """Return the first step with a non-finite mean, ignoring steps without a loss."""
        if all(math.isfinite(mean) for mean in means):
            return None
        bad = enumerate(zip(means, self._sums(), strict=True))
        return next(
            (step for step, (mean, (_, weight)) in bad if weight > 0 and not math.isfinite(mean)),
            None,
        )

    def _sums(self) -> list[tuple[float, float]]:
        """Return the weighted loss and the weight of each step.

        With canonical parts, one worker contributes each part and the others add zeros: on any
        number of workers, this adds the same values in the same order.
        """
        end = -OTHERS - NAME_BITS - self._metric_values
        rows = self.packed[:end].view(2, len(self.steps), -1).tolist()
        losses, weights = ([sum(row) for row in each] for each in rows)
        return list(zip(losses, weights, strict=True))

    def others(self) -> list[float]:
        """Return the other values, after the sum completes."""
        numbers: list[float] = self.packed[-OTHERS - NAME_BITS : -NAME_BITS].tolist()
        return numbers

    def name_bits(self) -> list[float]:
        """Return the summed bits of the metrics' names, after the sum completes."""
        bits: list[float] = self.packed[-NAME_BITS:].tolist()
        return bits

    def metrics(self) -> list[dict[str, float]]:
        """Return the means of the metrics logged before each step, after the sum completes."""
        end = len(self.packed) - OTHERS - NAME_BITS
        return means_of(self.packed[end - self._metric_values : end], len(self.steps), self.names)

    @property
    def _metric_values(self) -> int:
        return 2 * len(self.steps) * len(self.names)


def window_steps(mean_step_seconds: float) -> int:
    """Return the number of steps in a window of about half a second."""
    return max(1, min(LONGEST_WINDOW_STEPS, round(WINDOW_SECONDS / max(mean_step_seconds, 1e-6))))
