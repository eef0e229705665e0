"""Events in a rig of real processes, and what they cost."""

import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from benchmarks.control_plane.board import Field
from benchmarks.control_plane.crew import RACK_NODES
from benchmarks.control_plane.measurement import KILLED, Measurement
from benchmarks.control_plane.rig import Counts, Rig, TooSlow

CUT_OFF = 0.4
FLAPPING = 0.01
FLAPS = 8
_FLAP_LEASES = 0.4
_BEGIN_SECONDS, _START_SECONDS = 60.0, 120.0
_BEGIN_LEASES = 10
_QUIET_SECONDS = 1.0


def scenarios(
    members: int, folder: Path, lease_seconds: float, step_seconds: float, kills: int
) -> Iterator[Measurement]:
    """Start a rig and yield the figures of one event after the other."""
    rig = Rig(
        members,
        folder,
        spare_rows=2 * kills + members,
        lease_seconds=lease_seconds,
        step_seconds=step_seconds,
    )
    try:
        yield started(rig)
        for number in range(kills):
            yield killed(rig, number)
            yield joined(rig)
        yield leader_killed(rig)
        yield joined(rig)
        if len(rig.nodes) > 1:
            yield flapped(rig)
            yield node_lost(rig, 1, "node lost")
            rack = min(RACK_NODES, len(rig.nodes) // 4)
            if rack > 1:
                yield node_lost(rig, rack, f"rack of {rack} nodes lost")
            if int(CUT_OFF * sum(each.is_up for each in rig.nodes)):
                yield cut_in_two(rig)
    finally:
        rig.close()


def started(rig: Rig) -> Measurement:
    """Start all workers and form the first generation."""
    seconds = rig.start(_START_SECONDS)
    rows = rig.living
    return _figures(rig, "start", 0, seconds, None, rows, rows, 1)


def killed(rig: Rig, number: int) -> Measurement:
    """Kill one worker that watches no other, on another node each time."""
    candidates = [row for row in rig.living if row != rig.leader()]
    victim = candidates[(len(candidates) // 2 + 1 + 37 * number) % len(candidates)]
    return _change(rig, KILLED, {victim}, lambda: rig.kill([victim]))


def leader_killed(rig: Rig) -> Measurement:
    """Kill the leader."""
    victim = rig.leader()
    return _change(rig, "leader killed", {victim}, lambda: rig.kill([victim]))


def joined(rig: Rig) -> Measurement:
    """Fork a worker that joins, on the node with the fewest workers."""
    node = min(
        (each.number for each in rig.nodes if each.is_up), key=lambda each: len(rig.rows_on(each))
    )
    return _change(rig, "worker joins", set(), lambda: rig.fork(node, joins=True))


def node_lost(rig: Rig, count: int, event: str) -> Measurement:
    """Take the power of nodes without the leader: nothing says that their workers are gone."""
    leaders = rig.node_of[rig.leader()]
    up = [each.number for each in rig.nodes if each.is_up and each.number != leaders]
    first = (len(up) - count) // 2
    numbers = up[first : first + count]
    victims = {row for number in numbers for row in rig.rows_on(number)}
    return _change(rig, event, victims, lambda: rig.power_off(numbers), silent=True)


def cut_in_two(rig: Rig) -> Measurement:
    """Cut off two fifths of the nodes, the leader's among them, from the others."""
    up = [each for each in rig.nodes if each.is_up]
    up.sort(key=lambda each: each.number != rig.node_of[rig.leader()])
    lost = up[: int(CUT_OFF * len(up))]
    victims = {row for node in lost for row in rig.rows_on(node.number)}
    return _change(rig, "cut 60:40", victims, lambda: rig.network.cut(lost), silent=True)


def flapped(rig: Rig) -> Measurement:
    """Switch the links of one node in a hundred off and on, each time for less than a lease."""
    count = max(1, round(FLAPPING * len(rig.nodes)))
    nodes = rig.nodes[-count:]
    lease = rig.crew.faults.lease_seconds
    _settle(rig)
    before, counts, rows = rig.generation(), rig.counts(), rig.living
    began = time.monotonic()
    for _ in range(FLAPS):
        rig.network.set_up(nodes, up=False)
        time.sleep(_FLAP_LEASES * lease)
        rig.network.set_up(nodes, up=True)
        time.sleep(_FLAP_LEASES * lease)
    seconds = time.monotonic() - began
    rig.wait(lambda: rig.complete_generation(before - 1, rows), _BEGIN_SECONDS)
    _settle(rig)
    there = rig.in_generation(rig.generation())
    changes = rig.generation() - before
    return _figures(
        rig, f"{count} nodes flap", 0, seconds, None, rows, there, changes, since=counts
    )


def _change(
    rig: Rig,
    event: str,
    victims: Collection[int],
    inject: Callable[[], object],
    *,
    silent: bool = False,
) -> Measurement:
    _settle(rig)
    before, counts = rig.generation(), rig.counts()
    began = time.monotonic()
    inject()
    expected = [row for row in rig.living if row not in victims]
    found: list[tuple[int, list[int]]] = []

    def complete() -> bool:
        one = rig.complete_generation(before, expected)
        found.extend([one] if one else [])
        return bool(found)

    limit = max(_BEGIN_SECONDS, _BEGIN_LEASES * rig.crew.faults.lease_seconds)
    try:
        rig.wait(complete, limit)
    except TooSlow as error:
        raise TooSlow(f"{event}: {error}") from None
    newest, there = found[0]
    seconds = max(rig.board.get(row, Field.BEGUN_AT) for row in there) / 1e9 - began
    beyond = seconds - rig.crew.faults.lease_seconds if silent else None
    _await_steps(rig, there)
    return _figures(
        rig, event, len(victims), seconds, beyond, expected, there, newest - before, since=counts
    )


def _settle(rig: Rig) -> None:
    """Wait until all members of the newest generation take steps and watch each other."""
    _await_steps(rig, rig.in_generation(rig.generation()))
    time.sleep(_QUIET_SECONDS)


def _await_steps(rig: Rig, rows: list[int]) -> None:
    step = max(rig.board.get(row, Field.STEP) for row in rows)
    rig.wait(lambda: all(rig.board.get(row, Field.STEP) > step for row in rows), _BEGIN_SECONDS)


def _figures(
    rig: Rig,
    event: str,
    lost: int,
    seconds: float,
    beyond: float | None,
    expected: list[int],
    there: list[int],
    generations: int,
    since: Counts | None = None,
) -> Measurement:
    now = rig.counts()

    def grown(row: int) -> tuple[int, int, int, float]:
        if since is None or row not in since.cpu_seconds:
            return (now.messages[row], now.sent[row], now.received[row], now.cpu_seconds[row])
        return (
            now.messages[row] - since.messages[row],
            now.sent[row] - since.sent[row],
            now.received[row] - since.received[row],
            now.cpu_seconds[row] - since.cpu_seconds[row],
        )

    each = [grown(row) for row in there if row in now.cpu_seconds]
    return Measurement(
        how="processes",
        members=rig.members,
        event=event,
        lost=lost,
        seconds=seconds,
        beyond_lease_seconds=beyond,
        messages=sum(one[0] for one in each),
        total_bytes=sum(one[1] for one in each),
        busiest_bytes=max(one[1] + one[2] for one in each),
        cpu_seconds=sum(one[3] for one in each),
        left_out=len(set(expected) - set(there)),
        generations=generations,
        lease_seconds=rig.crew.faults.lease_seconds,
        load=os.getloadavg()[0],
    )
