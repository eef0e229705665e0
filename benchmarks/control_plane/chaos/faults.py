"""The faults: each breaks something, repairs it, and returns the workers that it touched."""

import signal
import time
from collections.abc import Callable, Collection
from random import Random

from benchmarks.control_plane.rig import Rig

Fault = Callable[[Rig, Random], set[int]]


def kill(rig: Rig, chance: Random) -> set[int]:
    """Kill a worker."""
    victim = chance.choice(rig.living)
    rig.kill([victim])
    return {victim}


def kill_two(rig: Rig, chance: Random) -> set[int]:
    """Kill a worker, and another one while the others regroup."""
    victims = chance.sample(rig.living, 2)
    rig.kill(victims[:1])
    time.sleep(chance.uniform(0, 0.2))
    rig.kill(victims[1:])
    return set(victims)


def kill_leader(rig: Rig, chance: Random) -> set[int]:
    """Kill the leader."""
    del chance
    victim = rig.leader()
    rig.kill([victim])
    return {victim}


def kill_half_a_node(rig: Rig, chance: Random) -> set[int]:
    """Kill half of a node's workers at once; its other half must continue."""
    rows = rig.rows_on(chance.randrange(len(rig.nodes)))
    victims = chance.sample(rows, len(rows) // 2)
    rig.kill(victims)
    return set(victims)


def lose_node(rig: Rig, chance: Random) -> set[int]:
    """Take a node's power."""
    return _lose_nodes(rig, chance.sample(range(len(rig.nodes)), 1))


def lose_rack(rig: Rig, chance: Random) -> set[int]:
    """Take the power of a quarter of the nodes."""
    count = len(rig.nodes) // 4
    first = chance.randrange(len(rig.nodes) - count + 1)
    return _lose_nodes(rig, range(first, first + count))


def cut(rig: Rig, chance: Random) -> set[int]:
    """Cut off up to two fifths of the nodes for some leases."""
    count = chance.randint(1, 2 * len(rig.nodes) // 5)
    nodes = chance.sample(rig.nodes, count)
    touched = {row for node in nodes for row in rig.rows_on(node.number)}
    rig.network.cut(nodes)
    time.sleep(chance.uniform(0.2, 4) * rig.crew.faults.lease_seconds)
    rig.network.mend(nodes)
    return touched


def pause(rig: Rig, chance: Random) -> set[int]:
    """Stop a worker for up to two leases and a half."""
    victim = chance.choice(rig.living)
    rig.signal([victim], signal.SIGSTOP)
    time.sleep(chance.uniform(0.1, 2.5) * rig.crew.faults.lease_seconds)
    rig.signal([victim], signal.SIGCONT)
    return {victim}


def pause_node(rig: Rig, chance: Random) -> set[int]:
    """Stop all workers of a node but one, as in a cut inside a node."""
    rows = rig.rows_on(chance.randrange(len(rig.nodes)))
    victims = chance.sample(rows, len(rows) - 1)
    rig.signal(victims, signal.SIGSTOP)
    time.sleep(chance.uniform(0.1, 2.5) * rig.crew.faults.lease_seconds)
    rig.signal(victims, signal.SIGCONT)
    return set(rows)


def flap(rig: Rig, chance: Random) -> set[int]:
    """Switch a node's link off and on, some times, for less than a lease each."""
    node = chance.choice(rig.nodes)
    lease = rig.crew.faults.lease_seconds
    for _ in range(chance.randint(2, 5)):
        rig.network.set_up([node], up=False)
        time.sleep(chance.uniform(0.1, 0.6) * lease)
        rig.network.set_up([node], up=True)
        time.sleep(chance.uniform(0.1, 0.6) * lease)
    return set(rig.rows_on(node.number))


def _lose_nodes(rig: Rig, numbers: Collection[int]) -> set[int]:
    touched = {row for number in numbers for row in rig.rows_on(number)}
    rig.power_off(numbers)
    time.sleep(2 * rig.crew.faults.lease_seconds)
    for number in numbers:
        rig.power_on(number)
    return touched


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "kill two": kill_two,
    "kill leader": kill_leader,
    "kill half a node": kill_half_a_node,
    "node": lose_node,
    "rack": lose_rack,
    "cut": cut,
    "pause": pause,
    "pause node": pause_node,
    "flapping": flap,
}
