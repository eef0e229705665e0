"""Join a running training, for the first time or after the others continued without this member."""

import asyncio
import sys
from collections.abc import Iterable

from paceline.membership.member_state import JOIN_SECONDS, MemberState
from paceline.membership.messages import Join, Outdated, Reply
from paceline.specs.errors import RunOver
from paceline.specs.runs.roster import Member

TOO_FEW_SECONDS = 30.0
"""How long a member that cannot continue waits for others before the training ends for it."""


async def ask_to_join(state: MemberState) -> None:
    """Ask the leader for a place until this member has one or the run is over."""
    me, now = state.me, asyncio.get_running_loop().time
    await state.left.wait()
    answered_at = now()
    while state.generation < 0 and state.end is None and state.me is me:
        ended, leader = _published(state)
        if ended and not state.next.done():
            state.next.set_exception(RunOver)
            return
        if leader is not None:
            join = Join(member=me, facts=state.facts or {})
            if await state.control.gather(join, [leader]):
                answered_at = now()
        if now() - answered_at > TOO_FEW_SECONDS:
            state.give_up("no training worker answers: they are lost or cannot be reached")
            return
        await state.until_changed(JOIN_SECONDS)


def _published(state: MemberState) -> tuple[bool, Member | None]:
    """Return whether the run has ended, and its leader, as far as its folder can be read now."""
    try:
        return state.hooks.run_ended(), state.hooks.find_leader()
    except OSError as error:  # a shared file system may come back
        print(f"the run's folder cannot be read: {error}", file=sys.stderr)
        return False, None


async def rejoin(state: MemberState, replies: Iterable[Reply]) -> None:
    """Ask for a place under a new name, if the others are in a generation without this member.

    A member of the newer generation keeps its name: it is about to learn that it began. So may be
    one that has accepted a later roster.
    """
    ended = state.generation
    outdated = [each for each in replies if isinstance(each, Outdated)]
    if state.acceptor.state.accepted is not None:
        await state.until_changed(state.faults.lease_seconds / 5)
    if all(each.included for each in outdated):
        return
    if not state.generation == ended >= 0 or state.end is not None:
        return
    name, _, times = state.me.name.partition("+")
    state.rename(state.me.model_copy(update={"name": f"{name}+{int(times or 0) + 1}"}))
    state.interrupt()
    state.spawn(ask_to_join(state))
