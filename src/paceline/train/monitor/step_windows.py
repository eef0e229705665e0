"""Progress of a run, and windows of steps that are being summed over the workers."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from paceline.comm.host_copies import DelayedReading, queued_to
from paceline.specs import PacelineError, Part
from paceline.train.monitor.logged_rows import NAME_BITS, NOTHING, LoggedRow, Names, means_of

WINDOW_SECONDS = 0.5
LONGEST_WINDOW_STEPS = 200
STEPS_BEHIND = 2
"""Steps that an accelerator may be behind the host before the host waits for a window's sum."""
_POLL_SECONDS = 0.002
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
    skipped: list[torch.Tensor | None] = field(default_factory=list)
    """1 on the device if it skipped the update; None where the host has checked the gradient."""

    def __len__(self) -> int:
        return len(self.losses)

    def add(
        self,
        loss: torch.Tensor,
        weight: float | torch.Tensor,
        samples: int,
        seconds: float,
        logged: LoggedRow = NOTHING,
        skipped: torch.Tensor | None = None,
    ) -> None:
        """Append a step."""
        self.losses.append(loss)
        self.weights.append(weight)
        self.samples.append(samples)
        self.seconds.append(seconds)
        self.logged.append(logged)
        self.skipped.append(skipped)

    def with_skipped(self, losses: torch.Tensor) -> torch.Tensor:
        """Return the losses, NaN in the steps whose update the device skipped."""
        if all(each is None for each in self.skipped):
            return losses
        none = torch.zeros((), device=losses.device)
        flags = torch.stack([none if each is None else each for each in self.skipped])
        return torch.where(flags.view(-1, *[1] * (losses.ndim - 1)) > 0, math.nan, losses)

    def weights_on(self, device: torch.device) -> torch.Tensor:
        """Return the weights as a tensor, with at most one copy from the host to the device."""
        if any(isinstance(each, torch.Tensor) for each in self.weights):
            return torch.stack(
                [torch.as_tensor(each, dtype=torch.float32, device=device) for each in self.weights]
            )
        return queued_to(device, torch.tensor(self.weights, dtype=torch.float32))

    def put_before(self, earlier: "Unreported") -> None:
        """Prepend earlier steps whose sum was interrupted."""
        for mine, theirs in zip(self._columns(), earlier._columns(), strict=True):
            mine[:0] = theirs

    def keep(self, begin: int, end: int) -> None:
        """Drop the steps before `begin`, which were reported, and those from `end` on, which do not
        count."""
        for column in self._columns():
            column[:] = column[begin : max(begin, end)]

    def _columns(self) -> "tuple[list[Any], ...]":
        return self.losses, self.weights, self.samples, self.seconds, self.logged, self.skipped


@dataclass(frozen=True)
class Window:
    """A window of steps that is being summed over the workers."""

    reading: DelayedReading
    """The sum: weighted losses, their weights, the same of logged metrics, `OTHERS` more values,
    and the bits of the metrics' names."""
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

    def non_finite(self, means: list[float]) -> list[int]:
        """Return the steps with a non-finite mean, without those that have no loss."""
        if all(math.isfinite(mean) for mean in means):
            return []
        weights = [weight for _, weight in self._sums()]
        return [
            step for step, mean in enumerate(means) if weights[step] > 0 and not math.isfinite(mean)
        ]

    def _sums(self) -> list[tuple[float, float]]:
        """Return the weighted loss and the weight of each step.

        With canonical parts, one worker contributes each part and the others add zeros: on any
        number of workers, this adds the same values in the same order.
        """
        end = -OTHERS - NAME_BITS - self._metric_values
        rows = self._packed[:end].view(2, len(self.steps), -1).tolist()
        losses, weights = ([sum(row) for row in each] for each in rows)
        return list(zip(losses, weights, strict=True))

    def others(self) -> list[float]:
        """Return the other values, after the sum completes."""
        numbers: list[float] = self._packed[-OTHERS - NAME_BITS : -NAME_BITS].tolist()
        return numbers

    def name_bits(self) -> list[float]:
        """Return the summed bits of the metrics' names, after the sum completes."""
        bits: list[float] = self._packed[-NAME_BITS:].tolist()
        return bits

    def metrics(self) -> list[dict[str, float]]:
        """Return the means of the metrics logged before each step, after the sum completes."""
        end = len(self._packed) - OTHERS - NAME_BITS
        return means_of(self._packed[end - self._metric_values : end], len(self.steps), self.names)

    @property
    def _packed(self) -> torch.Tensor:
        return self.reading.values()

    @property
    def _metric_values(self) -> int:
        return 2 * len(self.steps) * len(self.names)


def window_steps(mean_step_seconds: float) -> int:
    """Return the number of steps in a window of about half a second."""
    return max(1, min(LONGEST_WINDOW_STEPS, round(WINDOW_SECONDS / max(mean_step_seconds, 1e-6))))


def check_sound(windows: Sequence[Window], check_groups: Callable[[], None]) -> None:
    """Wait for the sums of windows; raise if their steps have spoiled the weights.

    For the thread that saves the state after them: training goes on, and learns of it later.
    """
    for window in windows:
        while not window.reading.is_there:
            time.sleep(_POLL_SECONDS)
        check_groups()
        for offset in window.non_finite(window.means(math.nan)):
            if window.steps.skipped[offset] is None:
                raise PacelineError(
                    "the loss of a step before it is not finite",
                    fix="continue from the checkpoint before it",
                )
    check_groups()  # also if all windows were read before: the state may be newer than they
