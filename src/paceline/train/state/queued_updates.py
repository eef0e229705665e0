"""Updates that the host has queued on an accelerator, and the way back if they do not happen.

The host runs ahead of its device. If a worker is lost, updates of the others may be queued behind a
sum that never ends. The device skips them (`UpdateGate`), but the host has counted them: schedules,
step and place in the data go back to what they were before the first one that was skipped.
"""

from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from paceline.comm.groups import Groups
from paceline.comm.host_copies import wait_for_queued
from paceline.data.streams import Cursor
from paceline.train.state.kept_objects import KeptObjects
from paceline.train.state.updates import Update
from paceline.train.state.weight_average import WeightAverage


@dataclass
class _Queued:
    """An update on its way, and the host's part of the state before it."""

    done: int
    """Number of updates before it."""
    update: Update
    reading: torch.Tensor
    """The gate before it, on the device."""
    place: Any
    averaged: int
    states: int = field(init=False)
    """Number of parameters with a state of the optimizer: a skipped first update leaves momentum
    that was never written."""
    settings: list[dict[str, Any]] = field(init=False)
    schedule: dict[str, Any] | None = field(init=False)
    reading_after: torch.Tensor | None = None
    end: torch.Event | None = None

    def __post_init__(self) -> None:
        optimizer, schedule = self.update.optimizer, self.update.schedule
        self.states = len(optimizer.state)
        self.settings = [
            {
                key: value.clone() if isinstance(value, torch.Tensor) else value
                for key, value in group.items()
                if key != "params"
            }
            for group in optimizer.param_groups
        ]
        self.schedule = deepcopy(schedule.state_dict()) if schedule else None

    def undo(self) -> None:
        """Restore the host's part of the state before this update, which was skipped."""
        optimizer = self.update.optimizer
        for parameter in list(optimizer.state)[self.states :]:
            del optimizer.state[parameter]
        if self.update.schedule is not None and self.schedule is not None:
            self.update.schedule.load_state_dict(self.schedule)
        for group, settings in zip(optimizer.param_groups, self.settings, strict=True):
            group.update(settings)


class Settled(NamedTuple):
    """What an abort has left of a worker's updates."""

    updates: int
    """Updates that happened for certain."""
    is_whole: bool
    """Whether the state is the one after them; if not, it is void."""


class QueuedUpdates:
    """The updates that one worker's device has not ended."""

    def __init__(
        self,
        updates: Sequence[Update],
        groups: Groups,
        cursor: Cursor | None,
        average: WeightAverage | None,
        kept: KeptObjects,
        *,
        regroups: bool,
        has_other_copy: bool,
        can_repeat: bool,
    ) -> None:
        """`regroups`: survivors of a lost worker continue with their own state; `has_other_copy`:
        or with one that was copied before; `can_repeat`: an earlier batch can be had again."""
        self._groups, self._cursor, self._average = groups, cursor, average
        self._regroups, self._has_other_copy = regroups, has_other_copy
        self._can_skip = can_repeat and all(each.can_skip for each in updates)
        self._kept = kept
        self._queue = deque[_Queued]()
        self.gate: torch.Tensor | None = None
        """1 on the device if it is to skip the current update; None if it need not know."""

    def begin(self, update: Update, done: int) -> None:
        """Begin the update after `done` others, if the process groups still stand.

        If an earlier step could not be taken again without a loss, or if only the host can skip the
        update, the host waits for the sums that the update is computed from.
        """
        device, health = self._groups.device, self._groups.health
        self.gate = None
        if device.type == "cpu":
            return
        together = self._regroups and self._groups.placement.workers > 1
        # What the user's loop did with its own objects after a step is not repeated.
        skips = together and self._can_skip and not self._kept.any_of_user
        if together and not skips and not self._has_other_copy:
            wait_for_queued(device)
        health.begin_update(device)
        if not skips:
            self._queue.clear()
        else:
            self._forget_ended()
            self.gate = health.gate.reading(device)
            place = self._cursor.place if self._cursor else None
            averaged = self._average.updates if self._average else 0
            self._queue.append(_Queued(done, update, self.gate, place, averaged))

    def skip(self, flag: torch.Tensor | None) -> torch.Tensor | None:
        """Return 1 on the device if it is to skip the update, by the gate or by a `flag`."""
        if self.gate is None or flag is None:
            return flag if self.gate is None else self.gate
        return torch.maximum(flag, self.gate)

    def end(self) -> None:
        """Note that the update is queued as a whole."""
        device, health = self._groups.device, self._groups.health
        if device.type == "cpu":
            return
        if self.gate is not None:
            self._queue[-1].reading_after = health.gate.reading(device)
        end = health.end_update(device)
        if self.gate is not None:
            self._queue[-1].end = end

    def settled(self) -> Settled | None:
        """After an abort, find out which updates happened, and make the host agree.

        Return None if it is unknown: they did not look at the gate. The caller knows that none
        begins; the device ends what is queued.
        """
        torch.accelerator.synchronize(self._groups.device)
        queue = list(self._queue)
        self._queue.clear()
        for number, each in enumerate(queue):
            if each.reading.item():
                for skipped in reversed(queue[number:]):
                    skipped.undo()
                if self._cursor is not None:
                    self._cursor.place = each.place
                if self._average is not None:
                    self._average.updates = each.averaged
                return Settled(each.done, is_whole=True)
            if each.reading_after is None or each.reading_after.item():
                # A collective inside the update itself may have been aborted.
                return Settled(each.done, is_whole=False)
        return Settled(queue[-1].done + 1, is_whole=True) if queue else None

    def _forget_ended(self) -> None:
        ended = 0
        for each in self._queue:
            if each.end is None or not each.end.query():
                break
            ended += 1
        if not self._groups.health.gate.is_closed:  # asked after them: they passed an open gate
            for _ in range(ended):
                self._queue.popleft()
