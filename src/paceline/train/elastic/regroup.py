"""Regroup: survivors continue in new process groups, inside the living process.

If every worker holds the whole state, the survivors continue from the most advanced one, which
sends its state to the others. Otherwise the model is rebuilt for the current workers, and its state
restored from peer copies or from a checkpoint.
"""

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from paceline.comm.group_errors import CommunicationError, drop_frames
from paceline.comm.groups import Groups
from paceline.comm.host_copies import wait_for_queued
from paceline.comm.torch_internals import clear_sharding_cache
from paceline.membership.service import Begun
from paceline.parallel.fitted_layout import everybody_has_all, fitted
from paceline.specs import Layout, Lost, Regrouped, Roster, Source
from paceline.train.elastic.agent import ElasticAgent
from paceline.train.elastic.checkpointing import Checkpointing
from paceline.train.elastic.state_transfer import donors_by_receiver, transfer_state
from paceline.train.elastic.watchdog import Watchdog
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.stepper import Stepper

_MAX_FRUITLESS = 3
"""Consecutive generations of the same workers without a step, after which the run ends: regrouping
does not fix the fault, and it would recur."""


@dataclass(frozen=True)
class _Restored:
    """The state that a generation continues from."""

    stepper: Stepper
    done: int
    steps_again: int
    source: Source


class Regroup:
    """The move of one worker's training from generation to generation."""

    def __init__(
        self,
        layout: Layout,
        groups: Groups,
        agent: ElasticAgent | None,
        telemetry: Telemetry,
        checkpointing: Checkpointing | None,
        build: Callable[[Layout], Stepper],
    ) -> None:
        self._layout = layout
        """The planned layout."""
        self._groups, self._telemetry, self._checkpointing = groups, telemetry, checkpointing
        self._build = build
        self._whole = -1
        """The number of updates whose whole state this worker holds; -1 if it holds none. Each step
        counts all updates of its phases, or one."""
        self._reached = 0
        self._stepper: Stepper | None = None
        self._fruitless = 0
        self._agent = agent
        self._watchdog: Watchdog | None = None
        if agent is not None:
            seconds = agent.faults.stuck_seconds
            self._watchdog = Watchdog(seconds, agent.interrupt, agent.work_done)

    def got_on(self) -> None:
        """Note progress: a step is done, or a generation begins."""
        if self._watchdog is not None:
            self._watchdog.moved()

    def close(self) -> None:
        """Stop the watchdog."""
        if self._watchdog is not None:
            self._watchdog.close()

    @property
    def asked(self) -> bool:
        """Whether all workers have agreed to regroup after this step."""
        return self._telemetry.progress.regroup

    @property
    def possible(self) -> bool:
        """Whether this training survives the loss of a worker."""
        return self._agent is not None

    def begun(self) -> tuple[Stepper, int]:
        """Begin with the workers of the rendezvous; return the stepper and its step."""
        try:
            with self._groups.health.communicating():
                if self.possible:
                    self._groups.authenticate()
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
        """Wait to join a running training; return the stepper and its step."""
        return self._next("a worker joins")

    def recovered(self, stepper: Stepper, done: int, why: str | None) -> tuple[Stepper, int]:
        """Regroup with the current members; return the stepper and its step.

        `why`: what failed; None if nothing did, and a worker joins.
        """
        if why is None:
            wait_for_queued(self._groups.device)  # or the steps on their way would be cut off
            with suppress(RuntimeError):  # a worker is lost meanwhile
                stepper.monitor.close()  # all have queued the same sums, and cut none of them off
            why = "a worker joins"
        updates = done * len(stepper.updates) + stepper.updates_done
        self._whole = updates if stepper.keeps_state else -1
        self._reached = done
        stepper.discard_step()
        self._stepper = stepper
        before = self._members
        found = self._next(why)
        no_progress = self._members == before and found[1] == self._reached
        self._fruitless = self._fruitless + 1 if no_progress else 0
        return found

    @property
    def is_stuck(self) -> bool:
        """Whether the same workers have regrouped several times without progress."""
        return self._fruitless >= _MAX_FRUITLESS

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
            self._watchdog.rest()  # a spare may wait forever
        tried, is_stuck = tuple[str, ...](), 0
        while True:
            agent.interrupt()  # including background communication threads
            if self._groups.health.state_is_spoiled:
                self._settle_updates()
            if self._stepper is not None:
                self._stepper.release_groups()
            copies = agent.copies
            facts = {
                "updates": self._whole,
                "reached": self._reached,
                "reported": self._telemetry.reported(),
            } | (copies.facts() if copies else {})
            begin = agent.regroup(self._groups, facts, why)
            layout = fitted(self._layout, begin.roster.training)
            assert layout is not None
            try:
                with self._groups.health.communicating():
                    restored = self._restore(layout, begin, before)
            except CommunicationError as error:
                is_stuck = is_stuck + 1 if begin.roster.names == tried else 1
                if is_stuck == _MAX_FRUITLESS:
                    raise
                tried, why = begin.roster.names, str(error)
                continue
            self._groups.health.begin_generation()
            self._write_events(before, begin, restored, time.perf_counter() - began)
            self.got_on()
            return restored.stepper, restored.done

    def _settle_updates(self) -> None:
        """Find the updates that happened although the groups were aborted behind them."""
        stepper, self._whole = self._stepper, -1
        if stepper is None or not stepper.keeps_state:
            return
        settled = stepper.queued.settled()
        if settled is None:
            return
        self._reached = settled.updates // len(stepper.updates)
        if settled.is_whole:
            self._groups.health.forget_updates()
            self._whole = settled.updates

    def _restore(self, layout: Layout, begin: Begun, before: Roster | None) -> _Restored:
        training = slice(begin.roster.training)
        updates = [int(each) for each in begin.fact("updates")[training]]
        newest = max(updates)
        reached = max(map(int, begin.fact("reached")[training]))
        source: Source
        checkpointing = self._checkpointing
        assert checkpointing is not None
        checkpointing.abandon()
        stepper = self._standing(layout)
        if stepper.keeps_state and newest >= 0:
            mine = self._whole
            self._whole = newest if mine == newest else -1
            done, updates_done = divmod(newest, len(stepper.updates))
            transfer_state(stepper.state(), self._groups, donors_by_receiver(updates), step=done)
            # An abort would leave a part of it, and raise nothing.
            self._groups.health.check_arrived(self._groups.device)
            source = "members"
        else:
            done, source = checkpointing.restore(stepper, begin)
            newest, updates_done = done * len(stepper.updates), 0
        self._whole = newest if stepper.keeps_state else -1
        stepper.begin_at(done, updates_done)
        reports = begin.fact("reported")[training]
        self._telemetry.logged.learn(reports)
        if source == "members":
            best = max(reports, key=lambda each: each["steps"])
            self._telemetry.regrouped(best, stepper.batches, done)
            if self._telemetry.validator is not None:
                self._telemetry.validator.agree(reports)
        lost = [before.rank(name) for name in begin.lost] if before else []
        checkpointing.begin(stepper, done, [rank for rank in lost if rank is not None])
        return _Restored(stepper, done, max(0, reached - done), source)

    def _standing(self, layout: Layout) -> Stepper:
        """Return the stepper of a generation: the same one if it holds the whole state."""
        if (
            self._stepper is not None
            and self._stepper.keeps_state
            and not self._groups.health.state_is_spoiled
            and everybody_has_all(layout, self._stepper.sync)
        ):
            self._stepper.rejoin(layout)
            return self._stepper
        self._whole = -1
        if self._stepper is not None:
            self._stepper.close_abruptly()
            self._stepper = None
            gc.collect()  # cyclic references would keep the threads of the modules' groups alive
            clear_sharding_cache()
        self._stepper = self._build(layout)
        return self._stepper

    def _write_events(
        self, before: Roster | None, begin: Begun, restored: _Restored, seconds: float
    ) -> None:
        if before is not None:
            self._tell_others(before, begin, restored, seconds)
        self._telemetry.restarted(seconds, restored.stepper.batches.steps)

    def _tell_others(
        self, before: Roster, begin: Begun, restored: _Restored, seconds: float
    ) -> None:
        roster = begin.roster
        for name, why in begin.lost.items():
            rank = before.rank(name)
            if rank is not None:
                node, generation = before.members[rank].node, before.generation
                self._telemetry.write_once(
                    Lost, generation=generation, rank=rank, lost_node=node, why=str(why)
                )
        known = dict.fromkeys(before.names[: before.training])
        self._telemetry.write_once(
            Regrouped,
            workers=roster.training,
            idle=len(roster.members) - roster.training,
            lost=[rank for rank, name in enumerate(known) if roster.rank(name) is None],
            joined=[
                rank
                for rank, name in enumerate(roster.names[: roster.training])
                if name not in known
            ],
            step=restored.done,
            steps_again=restored.steps_again,
            source=restored.source,
            seconds=seconds,
            why=begin.why,
        )
