"""How a member comes to a place: for the first time, or after the others went on without it."""

from typing import TYPE_CHECKING

from paceline.recover.hooks import Over
from paceline.recover.messages import Join

if TYPE_CHECKING:
    from paceline.recover.succession import Succession

REJOIN_SECONDS = 0.5
"""How often who waits for a place asks for it."""


async def ask_to_join(own: "Succession") -> None:
    """Ask for a place until there is one, or the training is over."""
    me = own.me
    await own.left.wait()
    while own.begun < 0 and own.finish is None and own.me is me:
        if own.hooks.is_over() and not own.next.done():
            own.next.set_exception(Over)
            return
        leader = own.hooks.find_leader()
        if leader is not None:
            join = Join(member=me, facts=own.facts or {})
            await own.control.gather(join, [leader])
        await own.until_changed(REJOIN_SECONDS)


async def fall_behind(own: "Succession") -> None:
    """The others are in another generation, without this member: it asks for a place as a new one.

    One that has accepted a roster may be in it, and about to be told that it has begun.
    """
    ended = own.begun
    if own.seat.standing.accepted is not None:
        await own.until_changed(own.faults.lease_seconds / 5)
    if own.begun == ended >= 0 and own.finish is None:
        own.come_anew()
