"""The same on a testbed: nodes with links and real Slurm, one worker on each node."""

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos.faults.schedule import Fault
from benchmarks.chaos.inject.local import target, told
from benchmarks.chaos.settings import Setting
from benchmarks.chaos.world.machine import ABOUT, JOB, World
from benchmarks.chaos.world.workers import Worker
from benchmarks.common.partition import cut_off, put_back
from paceline import testbed

_SILENT_SECONDS = 3.0
"""A worker that has taken no step for so long, while others have, does not train."""
_TELL_SECONDS = 60.0
_SLOW_SECONDS = 3.0


class BoxWorld(World):
    """One run on the nodes of a testbed that is up."""

    def __init__(self, folder: Path, setting: Setting, box: str, nodes: int, steps: int) -> None:
        super().__init__(folder, setting, steps=steps, pace_seconds=0.02, faults=nodes)
        self.box, self.nodes = box, nodes

    def words_to_start(self) -> list[str]:
        """Submit it, and stay until its end."""
        return ["submit", str(JOB), *ABOUT, *self._there()]

    def words_to_resume(self) -> list[str]:
        """Submit it again."""
        return ["resume", str(self.run), *self._there()]

    def _there(self) -> list[str]:
        return ["--nodes", str(self.nodes), "--testbed", self.box, "--wait"]

    def trains(self, worker: Worker) -> bool:
        """Its process cannot be seen from here: what it writes can."""
        newest = max(each.at for each in self.workers.values())
        return newest - worker.at < _SILENT_SECONDS


def _node(world: BoxWorld, fault: Fault) -> None:
    victim = target(world, fault)
    told(world, fault, node=victim.node)
    testbed.stop(world.box, victim.node)
    _gone_on(world)
    testbed.start(world.box, victim.node)


def _link_down(world: BoxWorld, fault: Fault) -> None:
    victim = target(world, fault)
    told(world, fault, node=victim.node)
    testbed.link(world.box, victim.node, down=True)
    _gone_on(world)
    testbed.link(world.box, victim.node, up=True)


def _partition(world: BoxWorld, fault: Fault) -> None:
    """The smaller half keeps its links to each other, and has none to the rest."""
    there = world.training()
    first = fault.rank % len(there)
    smaller = [*there[first:], *there[:first]][: (len(there) - 1) // 2]
    nodes = [each.node for each in smaller]
    told(world, fault, nodes=nodes)
    cut_off(world.box, nodes)
    _gone_on(world)
    put_back(world.box, nodes)


def _slow_link(world: BoxWorld, fault: Fault) -> None:
    victim = target(world, fault)
    told(world, fault, node=victim.node)
    testbed.link(world.box, victim.node, rate="10mbit", delay="20ms")
    _last(world)
    testbed.link(world.box, victim.node, rate="1gbit", delay="0")


def _lost_packets(world: BoxWorld, fault: Fault) -> None:
    victim = target(world, fault)
    told(world, fault, node=victim.node)
    testbed.link(world.box, victim.node, loss="2%")
    _last(world)
    testbed.link(world.box, victim.node, loss="0")


def _gone_on(world: World) -> None:
    before, _ = world.mark
    world.until(lambda: world.generation > before, _TELL_SECONDS, "the others did not go on")


def _last(world: World) -> None:
    end = time.monotonic() + _SLOW_SECONDS
    world.until(lambda: time.monotonic() > end, _TELL_SECONDS, "")


INJECT_IN_BOX: dict[str, Callable[[BoxWorld, Fault], None]] = {
    "node": _node,
    "link-down": _link_down,
    "partition": _partition,
    "slow-link": _slow_link,
    "lost-packets": _lost_packets,
}
