"""A light worker: a real process with the real membership, which takes steps without torch.

Its training is a STAND-IN: a history of steps, each of which needs all members (`step_barrier.py`),
and which survivors take from the one that has most of it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.control_plane.board import Board, Field
from benchmarks.control_plane.chaos.history import next_digest
from benchmarks.control_plane.counting import count_traffic
from benchmarks.control_plane.crew import facts
from benchmarks.control_plane.step_barrier import Client, Server, StepBroken
from paceline.cluster.interfaces import Interface, Kind
from paceline.membership.hooks import Begun, Ended, Hooks
from paceline.membership.rendezvous.address_files import announce_leader, found_leader, secret_of
from paceline.membership.rendezvous.node_rendezvous import NodeRendezvous
from paceline.membership.service import Membership
from paceline.specs import Faults, Placement, Run
from paceline.specs.errors import RunOver
from paceline.specs.runs.roster import JOINS, Member, Roster

_POLL_SECONDS, _POLLS_PER_SECOND = 0.02, 5_000
"""How often a worker that has not started looks again, and all of them together at most."""


@dataclass(frozen=True)
class Crew:
    """What all workers of a rig know."""

    run: Run
    """A real run's folder: where workers find each other, and the leaders that are announced."""
    faults: Faults
    planned: int
    per_node: int
    step_seconds: float
    folder: Path
    """The workers' logs."""

    @property
    def poll_seconds(self) -> float:
        """How often a worker that has not started looks again."""
        return max(_POLL_SECONDS, self.planned / _POLLS_PER_SECOND)

    def placement(self, rank: int, node: str) -> Placement:
        """Return the placement that a launcher would give a worker."""
        local = JOINS if rank == JOINS else rank % self.per_node
        return Placement(
            rank=rank,
            workers=self.planned,
            local_rank=local,
            local_workers=self.per_node,
            node=node,
        )


class LightWorker:
    """One worker, in a process of its own."""

    def __init__(
        self, crew: Crew, board: Board, row: int, placement: Placement, address: str
    ) -> None:
        self._crew, self._board, self._row = crew, board, row
        self._placement, self._address = placement, address
        self._secret = secret_of(crew.run)
        self._log = (crew.folder / f"steps-{row}.jsonl").open("a", buffering=1)
        self._step, self._trained = 0, -1
        """Steps of this worker's state, and the generation that took the last of them."""
        self._digest = ""
        self._server = Server(address)
        self._client = Client(lambda: self._membership.ended)
        count_traffic(board, lambda: row)
        hooks = Hooks(
            interrupt=self._client.interrupt,
            kill_process=lambda: os.kill(os.getpid(), signal.SIGKILL),
            work_done=lambda: 0.0,
            open_store=self._open_store,
            announce=self._announce,
            find_leader=lambda: found_leader(crew.run, self._secret),
            fitting=lambda members: members,
            run_ended=lambda: False,
            planned=crew.planned,
        )
        self._membership = Membership(
            self._secret,
            address,
            placement.node,
            crew.faults,
            hooks,
            memory_port=self._server.port,
        )

    def run(self) -> None:
        """Take steps until the training ends for this worker."""
        self._write(Field.PORT, self._membership.member.port)
        joins = self._placement.joins
        try:
            begun = self._membership.join(facts(self._row)) if joins else self._first()
            while True:
                why = self._train(begun)
                begun = self._membership.leave(facts(self._row) | {"step": self._step}, why)
        except (Ended, RunOver) as error:
            self._note({"ended": str(error)})
        self._write(Field.ENDED, 1)
        self._membership.close()

    def _first(self) -> Begun | Roster:
        """Meet the other workers; begin the first generation."""
        interface = Interface("eth0", self._address, Kind.ETHERNET)
        with NodeRendezvous(self._crew.run, self._placement, interface=interface) as meeting:
            meeting.find_interface()
            said = meeting.exchange(self._membership.member.model_dump_json(), _first_roster)
        roster = Roster.model_validate_json(said)
        self._membership.begin(roster)
        return roster

    def _train(self, begun: Begun | Roster) -> str:
        """Take steps until the generation ends; return why."""
        roster = begun if isinstance(begun, Roster) else begun.roster
        first = roster.members[0]
        store = (first.address, first.memory_port) if isinstance(begun, Roster) else begun.store
        generation, members = roster.generation, len(roster.members)
        name = self._membership.member.name
        self._write(Field.RENAMED, int(name.partition("+")[2] or 0))
        self._write(Field.MEMBERS, members)
        self._write(Field.BEGUN_AT, time.monotonic_ns())
        self._write(Field.GENERATION, generation + 1)
        self._note({"begun": generation, "members": members, "name": name})
        if store == (self._address, self._server.port):
            self._server.serve(
                members,
                self._crew.step_seconds,
                lambda step: self._note({"decided": step, "generation": generation}),
                lambda: self._write(Field.DIVERGED, 1),
            )
        try:
            self._client.connect(*store)
            return self._steps(generation)
        except StepBroken as error:
            return f"a step was interrupted: {error}"
        finally:
            self._client.close()
            self._server.close()

    def _steps(self, generation: int) -> str:
        answer = self._client.exchange(self._state())
        newest = answer["state"]
        if newest["digest"] != self._digest:
            self._note({"restored": newest["step"], "had": self._step})
            self._step, self._trained = newest["step"], newest["trained"]
            self._digest = newest["digest"]
        while True:
            answer = self._client.exchange(self._state())
            self._step, self._trained = self._step + 1, generation
            self._digest = next_digest(self._digest, generation, self._step)
            self._note({"step": self._step, "generation": generation, "digest": self._digest})
            self._write(Field.STEPPED_AT, time.monotonic_ns())
            self._write(Field.STEP, self._step)
            if answer["wanted"]:
                return "a worker joins"

    def _state(self) -> dict[str, Any]:
        return {
            "step": self._step,
            "trained": self._trained,
            "digest": self._digest,
            "wanted": self._membership.wanted,
        }

    def _open_store(self) -> int:
        self._server.close()
        self._server = Server(self._address)
        return self._server.port

    def _announce(self, roster: Roster, leader: Member) -> None:
        announce_leader(self._crew.run, self._secret, roster.generation, leader)

    def _note(self, what: dict[str, Any]) -> None:
        self._log.write(json.dumps({"at": time.monotonic_ns(), **what}) + "\n")

    def _write(self, field: Field, value: int) -> None:
        self._board.set(self._row, field, value)


def _first_roster(arrivals: Sequence[str]) -> str:
    members = tuple(Member.model_validate_json(each) for each in arrivals)
    return Roster(generation=0, members=members, training=len(members)).model_dump_json()


def run_worker(crew: Crew, board: Board, row: int, placement: Placement, address: str) -> None:
    """Be a worker in a process that was just forked; does not return."""
    try:
        with (crew.folder / f"log-{row}").open("w", buffering=1) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        while not placement.joins and not board.get(row, Field.ASKED):
            time.sleep(crew.poll_seconds)
        LightWorker(crew, board, row, placement, address).run()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        raise
    finally:
        os._exit(0)
