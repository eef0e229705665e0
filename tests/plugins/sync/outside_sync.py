"""`outside-mode`: replicas average their weights every few steps, and wait for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from paceline.specs.plans.traffic import NUMBER_BYTES, ReplicatedPart, Traffic, copied, transfer
from paceline.sync.hook import Hook, HookContext
from paceline.sync.mode import SyncMode

if TYPE_CHECKING:
    import torch


class EveryFewSteps(SyncMode):
    """The mean of the weights, every few steps."""

    mode: Literal["outside-mode"] = "outside-mode"
    every: int = Field(default=4, ge=1)
    """Steps between two averages."""

    @property
    def title(self) -> str:
        """The name of this mode in tables."""
        return "outside averages"

    @property
    def words(self) -> str:
        """What replicas do."""
        return f"averaging their weights every {self.every} steps, from outside"

    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return an all-reduce of the weights every few steps."""
        workers, parameters = part.workers, part.parameters
        mean = transfer("all-reduce", workers, NUMBER_BYTES * parameters)
        return Traffic((mean,), workers, 1 / self.every, 0, copied(parameters, 2.0))

    def candidates(self) -> Iterator["EveryFewSteps"]:
        """Yield one candidate for the planner and `auto`."""
        yield EveryFewSteps(every=256)

    def extra_samples(self, workers: int) -> float:
        """Return a guess."""
        return 1.2 if workers > 1 else 1.0

    def hook(self, context: HookContext) -> "Averages":
        """Return what averages the weights."""
        return Averages(self, context)


class Averages(Hook):
    """Averages the weights after every few steps."""

    settings: EveryFewSteps

    def after_step(self, step: int) -> None:
        """Average, at the steps for it."""
        if step % self.settings.every == 0:
            self.conclude()

    def consensus(self) -> "list[torch.Tensor]":
        """Return the mean over the replicas."""
        row, lane = self.context.bucket(), self.context.lane
        weights = row.weights()
        mean = lane.finish(lane.begin(lambda: self.context.transport.average(weights)))
        return self.context.in_order([(row, mean)])

    def conclude(self) -> None:
        """Take the mean."""
        self.context.load(self.consensus())


MODE = EveryFewSteps()
