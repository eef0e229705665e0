"""Local steps, then the mean change.

Each replica trains alone for `every` steps. Then the mean change of the replicas since their last
common weights (the anchor) is a step of an outer optimizer. The model may be communicated in
fragments, in turn, and each round may overlap some steps (arXiv 2501.18512): a replica keeps its
updates of these steps.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from paceline.sync.averaging import Averager
from paceline.sync.buckets import Bucket, even_buckets
from paceline.sync.hook import Hook, HookContext, SyncTensor
from paceline.sync.modes._local_steps import LocalSteps


class RoundWatch(Protocol):
    """Sees the changes that rounds average."""

    def square(self, bucket: Bucket, change: torch.Tensor) -> torch.Tensor:
        """Return this worker's share of the squared norm of a bucket's changes."""

    def launched(self, step: int) -> None:
        """Note that the round of the last fragment begins after a step."""

    def landed(self, own: torch.Tensor, mean: torch.Tensor) -> None:
        """Take the shares of the squared norms of this replica's changes and of the mean."""


@dataclass
class _Fragment:
    """A fragment of the model, and the state of its round."""

    bucket: Bucket
    offset: int
    """Steps after which its round begins, within `every`."""
    anchor: torch.Tensor
    """The last common weights of the replicas."""
    momentum: torch.Tensor | None
    residual: torch.Tensor | None
    launched: torch.Tensor
    """The weights when the round in flight began."""
    mean: torch.Tensor
    """The change of this worker; once `arriving` is done, the mean of all changes."""
    arriving: "Future[Any] | None" = None
    launched_after: int = 0
    """The step after which the last round began."""
    lands_after: int | None = None
    """The step after which the round in flight takes effect."""
    launched_square: tuple[torch.Tensor, ...] = ()
    """Squared norm of this replica's change in the round in flight, if rounds are watched."""
    squares: tuple[torch.Tensor, ...] = ()
    """Those of its change and of the mean in the last round that landed."""


class LocalStepsHook(Hook):
    """Averages the changes of the replicas after every few local steps."""

    settings: LocalSteps
    watch: RoundWatch | None = None

    def __init__(self, settings: LocalSteps, context: HookContext) -> None:
        super().__init__(settings, context)
        self._averager = Averager(settings, context.transport)
        self._rate, self._momentum = context.for_optimizer(settings).outer
        self._step = 0
        buckets = even_buckets(context.learning, settings.fragments)
        self._fragments = [
            _Fragment(
                bucket,
                offset=number * settings.every // len(buckets),
                anchor=bucket.weights(),
                momentum=bucket.zeros() if self._momentum else None,
                residual=bucket.zeros() if self._averager.loses else None,
                launched=bucket.zeros(),
                mean=bucket.zeros(),
            )
            for number, bucket in enumerate(buckets)
        ]

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Apply the rounds that are due, then start new rounds that are due."""
        self._step = step
        for fragment in self._fragments:
            if fragment.lands_after == step:
                self._land(fragment)
            if (step - fragment.offset) % self.settings.every == 0 and step > fragment.offset:
                self._launch(fragment, step)
                if self.settings.overlap == 0:
                    self._land(fragment)
                else:
                    fragment.lands_after = step + self.settings.overlap

    def consensus(self) -> list[torch.Tensor]:
        """Return the anchors."""
        return self.context.in_order(
            (fragment.bucket, fragment.anchor) for fragment in self._fragments
        )

    @torch.no_grad()
    def conclude(self) -> None:
        """Run one more round with the changes since the last one."""
        self.watch = None  # shorter than the others
        for fragment in self._fragments:
            if fragment.lands_after is not None:
                self._land(fragment)
            if fragment.launched_after < self._step:
                self._launch(fragment, self._step)
                self._land(fragment)

    def drain(self) -> None:
        """Wait for the rounds in flight; they still take effect at their own steps."""
        for fragment in self._fragments:
            if fragment.arriving is not None:
                self.context.lane.finish(fragment.arriving)
                fragment.arriving = None

    def saved_tensors(self) -> Iterator[SyncTensor]:
        """Yield momentum, residual and the rounds in flight; the anchor is the consensus."""
        for fragment in self._fragments:
            named: dict[str, tuple[torch.Tensor | None, bool]] = {
                "momentum": (fragment.momentum, True),
                "rest": (fragment.residual, False),
            }
            if fragment.lands_after is not None or self.settings.overlap:
                named |= {"launched": (fragment.launched, False), "mean": (fragment.mean, True)}
            for kind, (flat, common) in named.items():
                if flat is not None:
                    for of, part in zip(
                        fragment.bucket.parameters, fragment.bucket.views(flat), strict=True
                    ):
                        yield SyncTensor(kind, of, part, common=common)

    def numbers(self) -> dict[str, Any]:
        """Return when the rounds in flight take effect."""
        return {
            "step": self._step,
            "launched_after": [fragment.launched_after for fragment in self._fragments],
            "lands_after": [fragment.lands_after for fragment in self._fragments],
        }

    def restored(self, numbers: Mapping[str, Any], *, same_replicas: bool) -> None:
        """Continue. With other replicas, drop the rounds in flight: the mean that each replica
        begins with includes them."""
        self._step = numbers.get("step", 0)
        landing, launched = (numbers.get(key, []) for key in ("lands_after", "launched_after"))
        if same_replicas and len(landing) == len(self._fragments):
            for number, fragment in enumerate(self._fragments):
                fragment.lands_after = landing[number]
                fragment.launched_after = launched[number]

    def _launch(self, fragment: _Fragment, step: int) -> None:
        fragment.launched.copy_(fragment.bucket.weights())
        torch.sub(fragment.anchor, fragment.launched, out=fragment.mean)
        fragment.launched_after = step
        if self.watch is not None:
            fragment.launched_square = (self.watch.square(fragment.bucket, fragment.mean),)
            if fragment is self._fragments[-1]:
                self.watch.launched(step)
        fragment.arriving = self.context.lane.begin(
            lambda: self._averager.average(
                fragment.mean, fragment.residual, fragment.bucket.shapes, step=step
            )
        )

    def _land(self, fragment: _Fragment) -> None:
        if fragment.arriving is not None:
            self.context.lane.finish(fragment.arriving)
        change = fragment.mean
        if self.watch is not None:
            self._measure(fragment, self.watch)
        if fragment.momentum is not None:
            fragment.momentum.mul_(self._momentum).add_(change)
            change = change.add(fragment.momentum, alpha=self._momentum)
        fragment.anchor.sub_(change, alpha=self._rate)
        # The replica keeps its updates made during the round.
        learned = fragment.bucket.weights().sub_(fragment.launched)
        fragment.bucket.load(learned.add_(fragment.anchor))
        fragment.arriving, fragment.lands_after = None, None

    def _measure(self, fragment: _Fragment, watch: RoundWatch) -> None:
        if not fragment.launched_square:  # before a restart
            return
        mean_square = watch.square(fragment.bucket, fragment.mean)
        fragment.squares = (*fragment.launched_square, mean_square)
        both = [each.squares for each in self._fragments if each.squares]
        if fragment is self._fragments[-1] and len(both) == len(self._fragments):
            own, mean = (torch.stack(each).sum() for each in zip(*both, strict=True))
            watch.landed(own, mean)
