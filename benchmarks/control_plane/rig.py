"""The scale rig: up to 1,000 real worker processes on nodes that are network namespaces."""

import gc
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.control_plane.board import Board, Field
from benchmarks.control_plane.light_worker import Crew, run_worker
from benchmarks.control_plane.nodes import Network, Node, address_of, fork_node
from paceline.cluster.open_files import allow_most_files
from paceline.membership.rendezvous.address_files import found_leader, secret_of
from paceline.specs import Faults, Job, Layout, Plan, Run
from paceline.specs.runs.roster import JOINS

_POLL_SECONDS = 0.005


class TooSlow(TimeoutError):
    """The workers did not reach a state in time."""


@dataclass(frozen=True)
class Counts:
    """What a rig's workers have said and used since they started."""

    messages: Counter[int]
    sent: Counter[int]
    received: Counter[int]
    heartbeats: Counter[int]
    cpu_seconds: dict[int, float]


class Rig:
    """Worker processes on nodes, and the faults that can be injected into them."""

    def __init__(
        self,
        members: int,
        folder: Path,
        *,
        per_node: int = 8,
        spare_rows: int = 64,
        lease_seconds: float = 1.5,
        step_seconds: float = 0.05,
    ) -> None:
        allow_most_files()
        folder.mkdir(parents=True)
        self.members, self.per_node = members, per_node
        run = _new_run(folder / "runs", members, per_node)
        self._secret = secret_of(run)
        self.crew = Crew(
            run, Faults(lease_seconds=lease_seconds), members, per_node, step_seconds, folder
        )
        self.board = Board(members + spare_rows)
        self._next_row = 0
        self._last_row = members + spare_rows
        self.node_of: dict[int, int] = {}
        gc.collect()
        gc.freeze()  # what is loaded stays shared with the forked processes
        self.network = Network()
        self._node_count = -(-members // per_node)
        self.nodes = [self._fork_node(number) for number in range(self._node_count)]
        self.network.add(self.nodes)

    def start(self, timeout_seconds: float) -> float:
        """Start all workers; return the seconds until all have met and begun to train."""
        rows = [self.fork(node, joins=False) for node in self._places()]
        self.wait(lambda: all(self.board.get(row, Field.PID) for row in rows), timeout_seconds)
        began = time.monotonic()
        for row in rows:
            self.board.set(row, Field.ASKED, 1)
        self.wait(lambda: all(self.board.get(row, Field.STEP) for row in rows), timeout_seconds)
        return max(self.board.get(row, Field.BEGUN_AT) for row in rows) / 1e9 - began

    def fork(self, node: int, *, joins: bool) -> int:
        """Fork a worker on a node and return its row."""
        row = self._next_row
        assert row < self._last_row, "the board has no more rows"
        self._next_row += 1
        self.node_of[row] = node
        self.nodes[node].fork_worker(row, joins=joins)
        return row

    @property
    def living(self) -> list[int]:
        """The rows of workers that have neither ended nor been ended."""
        return [row for row in self.node_of if not self.board.get(row, Field.ENDED)]

    def kill(self, rows: Iterable[int]) -> None:
        """Kill workers; their kernel closes their connections."""
        for row in rows:
            with suppress(ProcessLookupError):
                os.kill(self.pid(row), signal.SIGKILL)
            del self.node_of[row]

    def power_off(self, numbers: Iterable[int]) -> None:
        """Take nodes' power: no message leaves them any more."""
        nodes = [self.nodes[number] for number in numbers]
        self.network.remove(nodes)
        for node in nodes:
            self.kill(self.rows_on(node.number))
            os.kill(node.pid, signal.SIGKILL)
            node.control.close()
            node.is_up = False

    def power_on(self, number: int) -> None:
        """Start a node again, without workers."""
        with suppress(ChildProcessError):
            os.waitpid(self.nodes[number].pid, 0)
        self.nodes[number] = self._fork_node(number)
        self.network.add([self.nodes[number]])

    def signal(self, rows: Iterable[int], number: signal.Signals) -> None:
        """Send workers a signal, such as SIGSTOP; its neighbors may have ended one meanwhile."""
        for row in rows:
            with suppress(ProcessLookupError):
                os.kill(self.pid(row), number)

    def forget_dead(self) -> None:
        """Forget workers whose processes have ended, as those that their neighbors ended."""
        for row in list(self.node_of):
            pid = self.board.get(row, Field.PID)
            if self.board.get(row, Field.ENDED) or (pid and not Path(f"/proc/{pid}").exists()):
                del self.node_of[row]

    @property
    def diverged(self) -> int:
        """Number of workers that saw members with different histories."""
        return sum(self.board.get(row, Field.DIVERGED) for row in range(self._next_row))

    def pid(self, row: int) -> int:
        """Return a worker's process ID."""
        pid = self.board.get(row, Field.PID)
        assert pid > 0, "this worker has not been forked yet"
        return pid

    def rows_on(self, number: int) -> list[int]:
        """Return the rows of the workers on a node."""
        return [row for row, node in self.node_of.items() if node == number]

    def leader(self) -> int:
        """Return the row of the first member of the last generation."""
        found = found_leader(self.crew.run, self._secret)
        assert found is not None
        return next(
            row
            for row in self.node_of
            if address_of(self.node_of[row]) == found.address
            and self.board.get(row, Field.PORT) == found.port
        )

    def generation(self) -> int:
        """Return the newest generation that began for any living worker."""
        return max(self.board.get(row, Field.GENERATION) for row in self.living)

    def in_generation(self, number: int) -> list[int]:
        """Return the rows of the workers for which this generation began last."""
        return [row for row in self.node_of if self.board.get(row, Field.GENERATION) == number]

    def complete_generation(
        self, after: int, expected: Collection[int]
    ) -> tuple[int, list[int]] | None:
        """Return a generation after this one that all its members have begun, and their rows.

        Only generations with a majority of the expected rows count.
        """
        number, size = Counter(
            self.board.get(row, Field.GENERATION) for row in expected
        ).most_common(1)[0]
        if number <= after or 2 * size <= len(expected):
            return None
        rows = self.in_generation(number)
        return (number, rows) if len(rows) == self.board.get(rows[0], Field.MEMBERS) else None

    def wait(self, reached: Callable[[], object], timeout_seconds: float) -> None:
        """Wait until something is true, or raise `TooSlow`."""
        deadline = time.monotonic() + timeout_seconds
        while not reached():
            if time.monotonic() > deadline:
                raise TooSlow(f"not within {timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def counts(self) -> Counts:
        """Return what the living workers have said and used so far."""
        rows = self.living

        def of(field: Field) -> Counter[int]:
            return Counter({row: self.board.get(row, field) for row in rows})

        return Counts(
            of(Field.SENT_MESSAGES),
            of(Field.SENT_BYTES),
            of(Field.RECEIVED_BYTES),
            of(Field.SENT_HEARTBEATS),
            {row: _cpu_seconds(self.pid(row)) for row in rows},
        )

    def close(self) -> None:
        """End all nodes and workers."""
        for row in self.node_of:
            if pid := self.board.get(row, Field.PID):  # else its node has not forked it yet
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for node in self.nodes:
            if node.is_up:
                os.kill(node.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.wait()
        for node in self.nodes:
            node.control.close()
        self.network.close()

    def _fork_node(self, number: int) -> Node:
        return fork_node(number, self._node_count, self._run_worker)

    def _places(self) -> list[int]:
        return [rank // self.per_node for rank in range(self.members)]

    def _run_worker(self, row: int, node: str, address: str, joins: bool) -> None:
        self.board.set(row, Field.PID, os.getpid())
        placement = self.crew.placement(JOINS if joins else row, node)
        run_worker(self.crew, self.board, row, placement, address)


def _new_run(folder: Path, members: int, per_node: int) -> Run:
    folder.mkdir()
    job = Job(
        name="rig",
        train=Path(__file__),
        nodes=-(-members // per_node),
        devices_per_node=per_node,
        folder=folder,
        python=Path(sys.executable),
    )
    return Run.create(folder, job, Plan(layout=Layout(replicas=members)))


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, from its own clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
