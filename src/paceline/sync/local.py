"""Steps of one's own, then the mean change: local SGD, DiLoCo and SparseLoCo.

Each replica trains alone for `every` steps. Then the mean of how far they came from where they last
agreed (the anchor) is a step for an outer optimizer: taken whole, that is local SGD or FedAvg; with
Nesterov momentum it is DiLoCo (arXiv 2311.08105); a few of its numbers, in two bits each, with what
is left out carried over, SparseLoCo (arXiv 2508.15706). The model may go in fragments, one after
the other, and each may be on its way for some steps while training goes on (arXiv 2501.18512): what
a replica has learned meanwhile is kept.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from paceline.comm.torch_internals import foreach_copy_
from paceline.sync.averaging import Averager
from paceline.sync.flat import Row, in_order, rows_of
from paceline.sync.mode import Bound, Kept, Mode


@dataclass
class _Fragment:
    """A part of the model, and how far its exchange has come."""

    row: Row
    offset: int
    """After how many steps of a round its exchange begins."""
    anchor: torch.Tensor
    """Where the replicas last agreed."""
    momentum: torch.Tensor | None
    rest: torch.Tensor | None
    launched: torch.Tensor
    """The weights as they were when the exchange under way began."""
    mean: torch.Tensor
    """The change, and once `arriving` is done, the mean of all."""
    arriving: "Future[Any] | None" = None
    launched_after: int = 0
    """The step after which the last exchange began."""
    lands_after: int | None = None
    """The step after which the exchange under way takes effect."""


class LocalSteps(Mode):
    """Replicas that exchange how far they came, every so many steps."""

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound)
        sync = bound.sync
        self._averager = Averager(sync, bound.transport)
        self._step = 0
        rows = rows_of(bound.learning, sync.fragments)
        self._fragments = [
            _Fragment(
                row,
                offset=number * sync.every // len(rows),
                anchor=row.weights(),
                momentum=row.zeros() if sync.outer_momentum else None,
                rest=row.zeros() if self._averager.loses else None,
                launched=row.zeros(),
                mean=row.zeros(),
            )
            for number, row in enumerate(rows)
        ]

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Land what is due, then launch what is."""
        self._step = step
        for fragment in self._fragments:
            if fragment.lands_after == step:
                self._land(fragment)
            if (step - fragment.offset) % self.bound.sync.every == 0 and step > fragment.offset:
                self._launch(fragment, step)
                if self.bound.sync.overlap == 0:
                    self._land(fragment)
                else:
                    fragment.lands_after = step + self.bound.sync.overlap

    def consensus(self) -> list[torch.Tensor]:
        """The anchors; what does not learn is the same on all."""
        rows = [(fragment.row, fragment.anchor) for fragment in self._fragments]
        return in_order(self.bound.held, rows)

    @torch.no_grad()
    def conclude(self) -> None:
        """A last exchange of all that was learned since the last one."""
        for fragment in self._fragments:
            if fragment.lands_after is not None:
                self._land(fragment)
            if fragment.launched_after < self._step:
                self._launch(fragment, self._step)
                self._land(fragment)

    def drain(self) -> None:
        """Wait for what is on its way; it takes effect when its step has come."""
        for fragment in self._fragments:
            if fragment.arriving is not None:
                self.bound.lane.finish(fragment.arriving)
                fragment.arriving = None

    def kept(self) -> Iterator[Kept]:
        """Momentum, what compression lost, and what is on its way; the anchor is the consensus."""
        for fragment in self._fragments:
            named: dict[str, tuple[torch.Tensor | None, bool]] = {
                "momentum": (fragment.momentum, True),
                "rest": (fragment.rest, False),
            }
            if fragment.lands_after is not None or self.bound.sync.overlap:
                named |= {"launched": (fragment.launched, False), "mean": (fragment.mean, True)}
            for kind, (flat, common) in named.items():
                if flat is not None:
                    for of, part in zip(fragment.row.held, fragment.row.views(flat), strict=True):
                        yield Kept(kind, of, part, common=common)

    def numbers(self) -> dict[str, Any]:
        """When what is on its way takes effect."""
        return {
            "step": self._step,
            "launched_after": [fragment.launched_after for fragment in self._fragments],
            "lands_after": [fragment.lands_after for fragment in self._fragments],
        }

    def restored(self, numbers: Mapping[str, Any], *, same_replicas: bool) -> None:
        """Go on; what was on its way between other replicas is part of what each now begins with,
        their mean."""
        self._step = numbers.get("step", 0)
        landing, launched = (numbers.get(key, []) for key in ("lands_after", "launched_after"))
        if same_replicas and len(landing) == len(self._fragments):
            for number, fragment in enumerate(self._fragments):
                fragment.lands_after = landing[number]
                fragment.launched_after = launched[number]

    def _launch(self, fragment: _Fragment, step: int) -> None:
        fragment.launched.copy_(fragment.row.weights())
        torch.sub(fragment.anchor, fragment.launched, out=fragment.mean)
        fragment.launched_after = step
        fragment.arriving = self.bound.lane.begin(
            lambda: self._averager.average(
                fragment.mean, fragment.rest, fragment.row.shapes, step=step
            )
        )

    def _land(self, fragment: _Fragment) -> None:
        if fragment.arriving is not None:
            self.bound.lane.finish(fragment.arriving)
        sync, change = self.bound.sync, fragment.mean
        if fragment.momentum is not None:
            fragment.momentum.mul_(sync.outer_momentum).add_(change)
            change = change.add(fragment.momentum, alpha=sync.outer_momentum)
        fragment.anchor.sub_(change, alpha=sync.outer_rate)
        # What was learned while the exchange was under way is kept.
        learned = fragment.row.weights().sub_(fragment.launched)
        foreach_copy_(fragment.row.locals, fragment.row.views(learned.add_(fragment.anchor)))
        fragment.arriving, fragment.lands_after = None, None
