"""Who is in the run, for a training that asks: the control of one member, on a thread of its own.

All that a training knows of the others comes from here: when its generation has ended, and who is
in the next one. It asks for nothing while all goes well.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from paceline.cluster.process import born
from paceline.membership.hooks import Ended, Hooks
from paceline.membership.messages import Begin, Retire, Vote
from paceline.membership.participant import Succession
from paceline.specs import Faults, Member, Roster

__all__ = ["Begin", "Ended", "Hooks", "Membership"]

_Result = TypeVar("_Result")
_CLOSING_SECONDS = 2.0


class Membership:
    """One worker's membership in a run."""

    def __init__(
        self,
        secret: bytes,
        address: str,
        node: str,
        faults: Faults,
        hooks: Hooks,
        *,
        memory_port: int = 0,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="control", daemon=True)
        self._thread.start()
        self._own = self._call(_opened(secret, address, node, faults, hooks, memory_port))

    @property
    def member(self) -> Member:
        """This worker, as the others know it."""
        return self._own.me

    @property
    def ended(self) -> bool:
        """Whether the generation that this worker was in has ended."""
        return self._own.ended

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for a place that the training has."""
        own = self._own
        return own.waiting.somebody and len(own.roster.members) < own.hooks.planned

    def may_retire(self) -> bool:
        """Whether this worker may end itself, since another waits and can have its place."""

        async def asked() -> bool:
            own = self._own
            leader = own.roster.members[0]
            if leader.name == own.me.name:
                return own.waiting.lets_go(own.me.name)
            question = Retire(begun=own.begun, name=own.me.name)
            reply = (await own.control.gather(question, [leader])).get(leader.name)
            return isinstance(reply, Vote) and reply.yes

        return self._call(asked())

    def begin(self, roster: Roster) -> None:
        """The first generation, which the workers have agreed on by themselves."""

        async def start() -> None:
            self._own.start(roster)

        self._call(start())

    def leave(self, facts: dict[str, Any], why: str | None) -> Begin:
        """Wait for the next generation, having left the exchanges of the last one for a reason, or
        standing by without one.

        Raises `Ended` where there will be none.
        """

        async def left() -> Begin:
            own = self._own
            if own.finish is not None:
                own.left.set()
                raise Ended(own.finish, own.me.name)
            if own.next.done():
                own.next = asyncio.get_running_loop().create_future()
            own.leave(facts, why)
            return await own.next

        return self._call(left())

    def join(self, facts: dict[str, Any]) -> Begin:
        """Wait for a place among the members of a run that goes on already.

        Raises `RunOver` where it has ended meanwhile.
        """

        async def joined() -> Begin:
            self._own.join(facts)
            return await self._own.next

        return self._call(joined())

    def fail(self, message: str) -> None:
        """Tell all others that this worker has failed in a way that they would, too."""
        self._call(self._own.spread_end(message))

    def close(self) -> None:
        """The training is over for this worker; the others do not take it for lost."""
        self._call(self._own.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSING_SECONDS)

    def _call(self, work: "Coroutine[Any, Any, _Result]") -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _opened(
    secret: bytes, address: str, node: str, faults: Faults, hooks: Hooks, memory_port: int
) -> Succession:
    pid = os.getpid()
    since = born(pid)
    me = Member(
        name=f"{node}:{pid}:{since}",
        node=node,
        pid=pid,
        born=since,
        address=address,
        port=1,
        memory_port=memory_port,
    )
    own = Succession(me, secret, faults, hooks)
    await own.listen(address)
    return own
