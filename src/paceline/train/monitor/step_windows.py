"""What is known of a run's steps, and windows of steps that are being summed over the workers."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from paceline.specs import Part

WINDOW_SECONDS = 0.5
LONGEST_WINDOW_STEPS = 200
OTHERS = 5
"""Numbers that are summed beside the losses and their weights."""


@dataclass
class Progress:
    """What is known of the run so far, the same on every worker."""

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    loss: float = math.nan
    """The last reported step's mean over its global batch."""
    stopped: bool = False
    """Whether the workers were asked to stop and have agreed to."""
    requeue: bool = False
    """Whether that was for the time limit, and the run is to go on in another turn."""
    save_agreed: bool = False
    """Whether it is time to save by the clock of worker 0."""
    regroup: bool = False
    """Whether somebody waits for a place, and all regroup at the edge of this step."""


@dataclass
class Unreported:
    """Steps of this worker that are not summed over the workers yet, one entry each."""

    losses: list[torch.Tensor] = field(default_factory=list)
    weights: list[float | torch.Tensor] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    """Of the global batch."""
    seconds: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.losses)

    def add(
        self, loss: torch.Tensor, weight: float | torch.Tensor, samples: int, seconds: float
    ) -> None:
        """One more step."""
        self.losses.append(loss)
        self.weights.append(weight)
        self.samples.append(samples)
        self.seconds.append(seconds)

    def put_before(self, earlier: "Unreported") -> None:
        """Steps before these, whose sum did not come about."""
        for mine, theirs in zip(self._columns(), earlier._columns(), strict=True):
            mine[:0] = theirs

    def forget(self, count: int) -> None:
        """The first of them have been reported."""
        for column in self._columns():
            del column[:count]

    def _columns(self) -> "tuple[list[Any], ...]":
        return self.losses, self.weights, self.samples, self.seconds


@dataclass(frozen=True)
class Window:
    """Steps that are being summed over the workers."""

    work: "dist.Work | None"
    packed: torch.Tensor
    """Weighted losses, their weights, other numbers."""
    losses: torch.Tensor
    """This worker's own; 0 where it had none that counts. A number, or a row of them, a step."""
    steps: Unreported
    parts: dict[Part, float]
    """What this worker's time went to."""

    def means(self, before: float) -> list[float]:
        """The mean loss of each step over its global batch, once it is summed.

        Where nobody who is left knows a step's loss, that of the step before; `before` the first.
        """
        found = []
        for loss, weight in self._sums():
            before = loss / weight if weight else before
            found.append(before)
        return found

    def first_non_finite(self, means: list[float]) -> int | None:
        """The first step whose mean is not finite; not one whose loss nobody knows."""
        if all(math.isfinite(mean) for mean in means):
            return None
        bad = enumerate(zip(means, self._sums(), strict=True))
        return next(
            (step for step, (mean, (_, weight)) in bad if weight > 0 and not math.isfinite(mean)),
            None,
        )

    def _sums(self) -> list[tuple[float, float]]:
        """The weighted loss of each step, and its weight.

        Where parts of a batch stand by themselves, each was told by one worker, to which the others
        added zeros: on any number of workers, the same numbers are added here in the same order.
        """
        rows = self.packed[:-OTHERS].view(2, len(self.steps), -1).tolist()
        losses, weights = ([sum(row) for row in each] for each in rows)
        return list(zip(losses, weights, strict=True))

    def others(self) -> list[float]:
        """The other numbers, once they are summed."""
        numbers: list[float] = self.packed[-OTHERS:].tolist()
        return numbers


def window_steps(mean_step_seconds: float) -> int:
    """Steps in a window of about half a second."""
    return max(1, min(LONGEST_WINDOW_STEPS, round(WINDOW_SECONDS / max(mean_step_seconds, 1e-6))))
