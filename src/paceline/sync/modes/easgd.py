"""`easgd`: replicas that are pulled to a common center (elastic averaging SGD, arXiv 1412.6651).

A reference for comparison: correct against closed forms, not fast. Every `every` steps, from the
weights of a worker and of the center before the step, and with α = `pull`:
θᵢ(t+1) = θᵢ(t) − η∇L(θᵢ(t)) − α(θᵢ(t) − θ̃(t)) and θ̃(t+1) = θ̃(t) + α Σᵢ (θᵢ(t) − θ̃(t)). There is no
server: every worker holds the center, and all add the same sum to it.
"""

from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from paceline.specs import Layout, PacelineError
from paceline.specs.plans.traffic import NUMBER_BYTES, ReplicatedPart, Traffic, copied, transfer
from paceline.sync.hook import Hook, HookContext
from paceline.sync.mode import SyncMode
from paceline.sync.modes._local_steps import drift

if TYPE_CHECKING:
    import torch

EXTRA_SAMPLES = 0.1
"""Additional samples to the loss of a plain all-reduce: assumed."""


class ElasticAveraging(SyncMode):
    """Replicas and a common center that pull each other."""

    mode: Literal["easgd"] = "easgd"
    every: int = Field(default=4, ge=1)
    """Steps between two pulls."""
    pull: float = Field(default=0.1, gt=0, le=1)
    """Fraction of their distance that a replica and the center move towards each other."""

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return f"a pull to a common center every {self.every} steps"

    def check(self, layout: Layout) -> None:
        """Reject settings that conflict with each other or with a layout."""
        super().check(layout)
        if (layout.replicas + 1) * self.pull >= 2:
            # A pull leaves 1 − (replicas + 1) × pull of the center's distance from their mean.
            raise PacelineError(
                f"pull={self.pull:g} was given for {layout.replicas} replicas: the center would"
                " overshoot their mean by its distance from it, or more",
                fix=f"use a pull below {2 / (layout.replicas + 1):.3g}; with"
                f" {1 / layout.replicas:.3g} the center moves to their mean",
            )

    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return the communication of a round: the mean of all pulls."""
        workers, parameters = part.workers, part.parameters
        summed = transfer("all-reduce", workers, NUMBER_BYTES * parameters)
        # It begins before forward and ends after the update, so it overlaps one step.
        return Traffic((summed,), workers, 1 / self.every, 1, copied(parameters, 6.0))

    def state_bytes(self, workers: int) -> float:
        """Return the bytes of the center, this worker's pull, and the mean of all pulls."""
        return 3 * NUMBER_BYTES if workers > 1 else 0

    def extra_samples(self, workers: int) -> float:
        """Return the samples to the same loss, relative to a plain all-reduce: assumed."""
        return 1.0 + EXTRA_SAMPLES * drift(workers) if workers > 1 else 1.0

    def hook(self, context: HookContext) -> "ElasticAveragingHook":
        """Return the hook that pulls replicas and center to each other."""
        return ElasticAveragingHook(self, context)


class ElasticAveragingHook(Hook):
    """Trains the center through the replicas tied to it."""

    settings: ElasticAveraging

    def __init__(self, settings: ElasticAveraging, context: HookContext) -> None:
        super().__init__(settings, context)
        self._bucket = context.bucket()
        self._center = self._bucket.weights()
        self._in_flight: tuple[torch.Tensor, Future[torch.Tensor]] | None = None
        """This worker's pull, and the mean of all pulls."""

    def before_forward(self, step: int) -> None:
        """Begin to average the pulls, while the worker computes its gradient."""
        if step % self.settings.every == 0:
            pull = self._bucket.weights().sub_(self._center).mul_(self.settings.pull)
            mean = pull.clone()
            self._in_flight = (
                pull,
                self.context.lane.begin(lambda: self.context.transport.average(mean)),
            )

    def after_step(self, step: int) -> None:
        """Move worker and center towards each other."""
        del step
        if self._in_flight is None:
            return
        pull, arriving = self._in_flight
        mean = self.context.lane.finish(arriving)
        self._bucket.subtract(pull)
        self._center.add_(mean, alpha=self.context.transport.workers)
        self._in_flight = None

    def consensus(self) -> "list[torch.Tensor]":
        """Return the center."""
        return self.context.in_order([(self._bucket, self._center)])

    def conclude(self) -> None:
        """Load the center."""
        self.context.load(self.consensus())


MODE = ElasticAveraging()
