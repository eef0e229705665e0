"""How a member comes to a place: for the first time, or after the others went on without it."""

import asyncio
from typing import TYPE_CHECKING

from paceline.membership.messages import End, Join
from paceline.specs.errors import RunOver

if TYPE_CHECKING:
    from paceline.membership.participant import Succession

REJOIN_SECONDS = 0.5
"""How often who waits for a place asks for it."""
TOO_FEW_SECONDS = 30.0
"""How long who cannot go on waits for others, before the training ends here."""


async def ask_to_join(own: "Succession") -> None:
    """Ask for a place until there is one, or the training is over."""
    me, now = own.me, asyncio.get_running_loop().time
    await own.left.wait()
    answered_at = now()
    while own.begun < 0 and own.finish is None and own.me is me:
        if own.hooks.is_over() and not own.next.done():
            own.next.set_exception(RunOver)
            return
        leader = own.hooks.find_leader()
        if leader is not None:
            join = Join(member=me, facts=own.facts or {})
            if await own.control.gather(join, [leader]):
                answered_at = now()
        if now() - answered_at > TOO_FEW_SECONDS:
            give_up(own, "nobody of those who trained answers: they are lost, or cannot be reached")
            return
        await own.until_changed(REJOIN_SECONDS)


def give_up(own: "Succession", message: str) -> None:
    """There are too few to go on: the training ends for this member, and may be started again."""
    own.over(End(begun=own.begun, name=own.me.name, message=message, too_few=True))


async def fall_behind(own: "Succession") -> None:
    """The others are in another generation, without this member: it asks for a place as a new one.

    One that has accepted a roster may be in it, and about to be told that it has begun.
    """
    ended = own.begun
    if own.seat.standing.accepted is not None:
        await own.until_changed(own.faults.lease_seconds / 5)
    if own.begun == ended >= 0 and own.finish is None:
        own.come_anew()
