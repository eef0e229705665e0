"""A worker's membership in a run, for its training; the control plane has its own thread.

The training learns from it when its generation has ended, and which workers are in the next one. It
asks nothing while all members are healthy.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from paceline.cluster.process import start_ticks
from paceline.membership.hooks import Begun, Ended, Hooks
from paceline.membership.participant import Participant
from paceline.specs import Faults, Member, Roster

__all__ = ["Begun", "Ended", "Hooks", "Membership"]

_Result = TypeVar("_Result")
_CLOSE_SECONDS = 2.0


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
        me = _this_process(address, node, memory_port)
        self._participant = self._call(_listening(me, secret, faults, hooks))
        self._state = self._participant.state

    @property
    def member(self) -> Member:
        """This worker's entry in the roster."""
        return self._state.me

    @property
    def ended(self) -> bool:
        """Whether this worker's generation has ended."""
        return self._state.ended

    @property
    def wanted(self) -> bool:
        """Whether a process waits for a place and the plan has one left."""
        state = self._state
        return bool(state.join_queue) and len(state.roster.members) < state.hooks.planned

    def may_retire(self) -> bool:
        """Return whether this worker may exit because a waiting process can replace it."""
        return self._call(self._participant.may_retire())

    def begin(self, roster: Roster) -> None:
        """Begin the first generation, on which the workers agreed at the rendezvous."""

        async def start() -> None:
            self._state.start(roster)

        self._call(start())

    def leave(self, facts: dict[str, Any], why: str | None) -> Begun:
        """Wait for the next generation, outside all collectives.

        `why` is the reason to end the generation; None for a spare, which takes no part in it.
        Raises `Ended` when the training has ended.
        """

        async def left() -> Begun:
            state = self._state
            if state.end is not None:
                state.left.set()
                raise Ended(state.end, state.me.name)
            if state.next.done():
                state.next = asyncio.get_running_loop().create_future()
            state.leave(facts, why)
            return await state.next

        return self._call(left())

    def join(self, facts: dict[str, Any]) -> Begun:
        """Wait for a place in a run that is already training.

        Raises `RunOver` when the run has ended.
        """

        async def joined() -> Begun:
            self._participant.join(facts)
            return await self._state.next

        return self._call(joined())

    def fail(self, message: str) -> None:
        """Tell all members that this worker failed and the training must end."""
        self._call(self._participant.fail(message))

    def close(self) -> None:
        """Leave the run in good order: the others do not count this worker as lost."""
        self._call(self._state.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)

    def _call(self, work: "Coroutine[Any, Any, _Result]") -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _this_process(address: str, node: str, memory_port: int) -> Member:
    pid = os.getpid()
    since = start_ticks(pid)
    return Member(
        name=f"{node}:{pid}:{since}",
        node=node,
        pid=pid,
        start_ticks=since,
        address=address,
        port=1,
        memory_port=memory_port,
    )


async def _listening(me: Member, secret: bytes, faults: Faults, hooks: Hooks) -> Participant:
    participant = Participant(me, secret, faults, hooks)
    await participant.listen(me.address)
    return participant
