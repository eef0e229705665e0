"""From the workers of one generation to those of the next, inside the living process.

Where every worker holds all of the state, those who are left go on with what the most advanced of
them holds, and give it to whoever has less. Otherwise the model is built anew for the workers that
there are, and its state read from copies in the memory of those who are left, or from a checkpoint.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from paceline.comm.errors import CommunicationError, drop_frames
from paceline.comm.groups import Groups
from paceline.comm.torch_internals import clear_sharding_cache
from paceline.membership.service import Begin
from paceline.parallel.fitted_layout import everybody_has_all, fitted
from paceline.specs import Layout, Lost, Regrouped, Roster, Source
from paceline.train.elastic.agent import Gathering
from paceline.train.elastic.checkpointing import Checkpointing
from paceline.train.elastic.state_transfer import hand_over, pairs
from paceline.train.elastic.watchdog import Watchdog
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.stepper import Stepper

_MOST_IN_VAIN = 3
"""Generations of the same workers without a step between them, after which the run ends: a fault
that regrouping does not cure would come again and again."""


@dataclass(frozen=True)
class _TakenUp:
    """The state that a generation goes on from."""

    stepper: Stepper
    done: int
    steps_again: int
    source: Source


class Regroup:
    """Leads one worker's training from generation to generation."""

    def __init__(
        self,
        layout: Layout,
        groups: Groups,
        agent: Gathering | None,
        telemetry: Telemetry,
        checkpointing: Checkpointing | None,
        build: Callable[[Layout], Stepper],
    ) -> None:
        self._layout = layout
        """As planned."""
        self._groups, self._telemetry, self._checkpointing = groups, telemetry, checkpointing
        self._build = build
        self._whole_step = -1
        """The step of which this worker holds all of the state; -1 while of none."""
        self._reached = 0
        self._stepper: Stepper | None = None
        self._in_vain = 0
        self._agent = agent
        self._watchdog = Watchdog(agent.faults.stuck_seconds, agent.interrupt) if agent else None

    def got_on(self) -> None:
        """A step is done, or a generation begins."""
        if self._watchdog is not None:
            self._watchdog.moved()

    def close(self) -> None:
        """The training is over for this worker."""
        if self._watchdog is not None:
            self._watchdog.close()

    @property
    def asked(self) -> bool:
        """Whether all workers have agreed to regroup at the edge of this step."""
        return self._telemetry.progress.regroup

    @property
    def possible(self) -> bool:
        """Whether the loss of a worker is survived."""
        return self._agent is not None

    def begun(self) -> tuple[Stepper, int]:
        """Begin with those who have met; the training, and its step."""
        try:
            with self._groups.health.communicating():
                stepper = self._build(self._layout)
                checkpointing = self._checkpointing
                done = checkpointing.restore_checkpoint(stepper) if checkpointing else 0
                stepper.begin_at(done)
                if checkpointing is not None:
                    checkpointing.begin(stepper, done)
        except CommunicationError as error:
            if not self.possible:
                raise
            drop_frames(error)
            why = str(error)
        else:
            self.got_on()
            return stepper, done
        return self._next(why)

    def joined(self) -> tuple[Stepper, int]:
        """Wait for a place among workers that train already; the training, and its step."""
        return self._next("a worker joins")

    def recovered(self, stepper: Stepper, done: int, why: str) -> tuple[Stepper, int]:
        """Go on with those who are there now; the training, and its step."""
        self._whole_step = done if stepper.keeps_state else -1
        self._reached = done
        stepper.take_back()
        self._stepper = stepper
        before = self._members
        found = self._next(why)
        self._in_vain = self._in_vain + 1 if self._members == before and found[1] == done else 0
        return found

    @property
    def in_vain(self) -> bool:
        """Whether the same workers have regrouped several times and not got on."""
        return self._in_vain >= _MOST_IN_VAIN

    @property
    def _members(self) -> tuple[str, ...]:
        agent = self._agent
        return agent.roster.names if agent and agent.roster else ()

    def _next(self, why: str) -> tuple[Stepper, int]:
        began = time.perf_counter()
        agent = self._agent
        assert agent is not None
        before = agent.roster
        if self._watchdog is not None:
            self._watchdog.rest()  # one that stands by may wait for ever
        tried, in_vain = tuple[str, ...](), 0
        while True:
            agent.interrupt()  # nobody waits any more, also not on a thread of its own
            if self._stepper is not None:
                self._stepper.let_go()
            copies = agent.copies
            facts = {
                "step": self._whole_step,
                "reached": self._reached,
                "reported": self._telemetry.reported(),
                "holdings": copies.holdings() if copies else {},
            }
            begin = agent.regroup(self._groups, facts, why)
            layout = fitted(self._layout, begin.roster.training)
            assert layout is not None
            try:
                with self._groups.health.communicating():
                    taken = self._take_up(layout, begin)
            except CommunicationError as error:
                in_vain = in_vain + 1 if begin.roster.names == tried else 1
                if in_vain == _MOST_IN_VAIN:
                    raise
                tried, why = begin.roster.names, str(error)
                continue
            self._tell(before, begin, taken, time.perf_counter() - began)
            self.got_on()
            return taken.stepper, taken.done

    def _take_up(self, layout: Layout, begin: Begin) -> _TakenUp:
        training = begin.roster.names[: begin.roster.training]
        steps = [int(begin.facts[name]["step"]) for name in training]
        newest = max(steps)
        reached = max(int(begin.facts[name]["reached"]) for name in training)
        source: Source
        checkpointing = self._checkpointing
        assert checkpointing is not None
        checkpointing.abandon()
        stepper = self._standing(layout)
        if stepper.keeps_state and newest >= 0:
            mine = self._whole_step
            self._whole_step = newest if mine == newest else -1
            hand_over(stepper.state(), self._groups, pairs(steps), step=newest)
            done, source = newest, "members"
        else:
            done, source = checkpointing.restore(stepper, begin)
        self._whole_step = done if stepper.keeps_state else -1
        stepper.begin_at(done)
        reports = [begin.facts[name]["reported"] for name in training]
        if source == "members":
            best = max(reports, key=lambda each: each["steps"])
            self._telemetry.regrouped(best, stepper.batches, done)
        checkpointing.begin(stepper, done)
        return _TakenUp(stepper, done, max(0, reached - done), source)

    def _standing(self, layout: Layout) -> Stepper:
        """The training on the workers of a generation, as far as it could stay as it was."""
        if (
            self._stepper is not None
            and self._stepper.keeps_state
            and everybody_has_all(layout, self._stepper.sync)
        ):
            self._stepper.rejoin(layout)
            return self._stepper
        self._whole_step = -1
        if self._stepper is not None:
            self._stepper.give_up()
            self._stepper = None
            gc.collect()  # modules refer to each other, and the threads of their groups live on
            clear_sharding_cache()
        self._stepper = self._build(layout)
        return self._stepper

    def _tell(self, before: Roster | None, begin: Begin, taken: _TakenUp, seconds: float) -> None:
        if before is not None:
            self._tell_others(before, begin, taken, seconds)
        self._telemetry.restarted(seconds)

    def _tell_others(self, before: Roster, begin: Begin, taken: _TakenUp, seconds: float) -> None:
        roster = begin.roster
        for name, why in begin.lost.items():
            rank = before.rank(name)
            if rank is not None:
                node, generation = before.members[rank].node, before.generation
                self._telemetry.tell(
                    Lost, generation=generation, rank=rank, lost_node=node, why=str(why)
                )
        known = before.names[: before.training]
        self._telemetry.tell(
            Regrouped,
            workers=roster.training,
            idle=len(roster.members) - roster.training,
            lost=[rank for rank, name in enumerate(known) if roster.rank(name) is None],
            joined=[
                rank
                for rank, name in enumerate(roster.names[: roster.training])
                if name not in known
            ],
            step=taken.done,
            steps_again=taken.steps_again,
            source=taken.source,
            seconds=seconds,
            why=begin.why,
        )
