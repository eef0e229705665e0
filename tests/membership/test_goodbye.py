"""A member that says goodbye is not taken for dead."""

import asyncio
import socket
import struct
from typing import Any

import pytest

from benchmarks.control_plane.crew import PER_NODE
from membership.test_participant import one
from paceline.membership.channel import Channel
from paceline.membership.compact.missing import Absence
from paceline.membership.messages import Goodbye, Heartbeat
from paceline.specs.runs.roster import Roster


async def channels() -> tuple[Channel, Channel, asyncio.Server]:
    """Two ends of a channel over a real connection."""
    accepted: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *ends: accepted.put_nowait(ends), "127.0.0.1", 0)
    ends = await asyncio.open_connection(*server.sockets[0].getsockname())
    opened = await asyncio.gather(
        Channel.open(*ends, b"secret", initiator=True),
        Channel.open(*await accepted.get(), b"secret", initiator=False),
    )
    return *opened, server


async def finish_after_a_reset() -> None:
    """Finish a channel before its own end has noticed that a dead process has reset it."""
    leaving, dead, server = await channels()
    connection = dead._writer.get_extra_info("socket")
    at_once = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    leaving._writer.transport.pause_reading()  # type: ignore[attr-defined]
    leaving.send(Goodbye(finished=False))
    dead.close()
    await asyncio.sleep(0.05)
    leaving.finish()
    leaving.close()
    server.close()


async def heard_by_a_busy_member(*, closes: bool) -> list[str]:
    """Return what arrives at a member that sends heartbeats before it reads."""
    leaving, busy, server = await channels()
    busy._writer.transport.pause_reading()  # type: ignore[attr-defined]
    leaving.send(Goodbye(finished=False))
    if closes:
        leaving.close()
    else:
        leaving.finish()
    for _ in range(3):  # the first is answered by a reset, the second finds it
        await asyncio.sleep(0.02)
        busy.send(Heartbeat())
    await asyncio.sleep(0.02)
    found: list[str] = []
    try:
        if not busy._writer.is_closing():
            busy._writer.transport.resume_reading()  # type: ignore[attr-defined]
        found.append((await busy.receive()).kind)
    except ConnectionError as error:
        found.append(type(error).__name__)
    finally:
        for each in (leaving, busy):
            each.close()
        server.close()
    return found


def test_a_member_that_died_cannot_be_told_goodbye() -> None:
    """A worker that left beside a killed leader died of its closed connection."""
    asyncio.run(finish_after_a_reset())


@pytest.mark.parametrize(("closes", "heard"), [(False, "goodbye"), (True, "BrokenPipeError")])
def test_a_goodbye_arrives_although_heartbeats_are_under_way(closes: bool, heard: str) -> None:
    """Members were taken for dead, and left out the second time; a closed channel shows why."""
    assert asyncio.run(heard_by_a_busy_member(closes=closes)) == [heard]


async def connected_to_one_that_has_left() -> tuple[bool, dict[str, Absence]]:
    """A member connects to one whose generation has ended already."""
    first, second = crew = [await one(PER_NODE * number, planned=2) for number in range(2)]
    roster = Roster(generation=0, members=(first.state.me, second.state.me))
    first.state.start(roster)
    first.state.end_generation("a process group could not be created", detected=False)
    second.state.start(roster)
    try:
        async with asyncio.timeout(10):
            while not second.state.ended:
                await asyncio.sleep(0.01)
        return second.state.found_loss, dict(second.state.lost)
    finally:
        for each in crew:
            await each.state.close()


@pytest.mark.usefixtures("kept_votes")
def test_a_member_that_left_before_others_connected_is_not_taken_for_dead() -> None:
    """Whom others took for dead three times was not asked any more, left out and killed."""
    assert asyncio.run(connected_to_one_that_has_left()) == (False, {})
