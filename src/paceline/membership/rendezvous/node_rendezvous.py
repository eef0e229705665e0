"""The rendezvous of a run's workers, along a tree of nodes.

One worker of each node, its contact, finds the contact of the node above: in the run folder, where
a contact with nodes below publishes its signed address. The other workers of a node find their
contact by a socket of the node. Arrivals go up the tree together with those below; worker 0
concludes, and its conclusion goes down. So each worker speaks with those of its node and with a few
others, however many there are, and only contacts look into the folder, with growing pauses.

Where nodes share no folder, `PACELINE_LEADER` names the address of each node by its number, or only
the first node's: then the contacts of all other nodes speak with its own.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from types import TracebackType

from paceline.cluster import interfaces
from paceline.cluster.interfaces import Interface
from paceline.comm.signing import Forged
from paceline.membership.channel import Channel
from paceline.membership.control import UNREACHED
from paceline.membership.messages import Arrivals, Conclusion, Goodbye, Hello, Welcome
from paceline.membership.patience import patiently
from paceline.membership.rendezvous.address_files import (
    RENDEZVOUS_TIMEOUT_SECONDS,
    RendezvousTimeout,
    found_address,
    pauses_between_looks,
    publish_address,
    secret_of,
)
from paceline.membership.rendezvous.contact import Contact, local_name
from paceline.membership.rendezvous.node_tree import NodeSeat
from paceline.membership.rendezvous.pauses import Pauses
from paceline.specs import PacelineError, Placement, Run

LEADER_VARIABLE = "PACELINE_LEADER"
"""Environment variable with `HOST:PORT` of worker 0, for nodes that share no folder. `{node}` in
the host stands for the number of any node, whose first worker listens at the same port."""
_NODE = "{node}"
_CONNECTING_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.5


class NodeRendezvous:
    """One worker's part in the rendezvous of a generation."""

    def __init__(
        self,
        run: Run,
        placement: Placement,
        port: int | None = None,
        *,
        interface: Interface | None = None,
    ) -> None:
        """`port`: where worker 0 listens for other nodes; None for any free port. `interface`:
        where contacts listen; None for the one that reaches the other nodes."""
        self.secret = secret_of(run)
        self._run, self._rank, self._generation = run, placement.rank, placement.generation
        named = _named_nodes()
        self._port = named[1] if named else port
        self._has_folder = named is None
        is_flat = named is not None and _NODE not in named[0]
        self._seat = NodeSeat.of(placement, is_flat=is_flat)
        self._above = named and (named[0].replace(_NODE, str(self._seat.parent)), named[1])
        self._is_contact = placement.rank == self._seat.local_ranks[0]
        self._interface = interface
        self._channel: Channel | None = None
        self._contact: Contact | None = None
        self.looks = 0
        """How often this worker has looked into the run folder."""
        self._runner = asyncio.Runner()

    def __enter__(self) -> "NodeRendezvous":
        self._runner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self._close())
        self._runner.__exit__(kind, error, trace)

    def find_interface(self) -> Interface:
        """Find the worker above this one; return the interface that reaches the other workers."""
        return self._runner.run(self._find())

    def exchange(self, arrival: str, conclude: Callable[[Sequence[str]], str]) -> str:
        """Send this worker's arrival, and return worker 0's conclusion from all of them.

        `conclude(arrivals by rank)` is called on worker 0 only.
        """
        return self._runner.run(self._exchange(arrival, conclude))

    async def _find(self) -> Interface:
        seat = self._seat
        address = await self._reach() if self._rank else None
        interface = self._interface or self._interface_towards(address)
        if self._is_contact:
            port = self._port if self._rank == 0 or not self._has_folder else None
            listener = interfaces.listener(interface, port) if seat.children else None
            self._contact = Contact(self.secret, self._generation, seat)
            await self._contact.listen(interface.address, listener)
            if listener is not None and self._has_folder:
                publish_address(
                    self._run,
                    self.secret,
                    self._generation,
                    seat.number,
                    listener.getsockname()[:2],
                )
        return interface

    def _interface_towards(self, address: str | None) -> Interface:
        if address is not None:
            return interfaces.towards(address)
        return interfaces.outward() if self._seat.nodes > 1 else interfaces.loopback()

    async def _exchange(self, arrival: str, conclude: Callable[[Sequence[str]], str]) -> str:
        arrived = {self._rank: arrival}
        if self._contact is not None:
            try:
                arrived |= await self._contact.collected(RENDEZVOUS_TIMEOUT_SECONDS)
            except TimeoutError:
                raise self._timeout(f"workers {self._contact.missing} did not arrive") from None
        if self._rank == 0:
            said = conclude([arrived[rank] for rank in sorted(arrived)])
        else:
            said = await self._report(Arrivals(said=arrived))
        if self._contact is not None:
            await self._contact.answer(said)
        return said

    async def _report(self, arrivals: Arrivals) -> str:
        """Send arrivals to the worker above; return the conclusion."""
        pauses = self._pauses()
        while True:
            if self._channel is None:
                await self._reach()
            assert self._channel is not None
            try:
                self._channel.send(arrivals)
                message = await patiently(self._channel.receive(), pauses.seconds_left)
                if isinstance(message, Conclusion):
                    self._channel.send(Goodbye(finished=True))
                    return message.said
                raise Forged(f"received {message.kind} instead of the conclusion")
            except UNREACHED as error:
                if not pauses.seconds_left:
                    raise self._timeout(f"some workers did not arrive: {error}") from None
            finally:
                self._channel.close()
                self._channel = None
            await asyncio.sleep(pauses.next_seconds())

    async def _reach(self) -> str:
        """Open a channel to the worker above; return an address of the interface to use."""
        pauses, problem = self._pauses(), "it has not published its address"
        while pauses.seconds_left:
            try:
                self._look()
            except PermissionError:
                raise
            except OSError as error:  # the folder shows up late on a node, or fails for a moment
                problem = f"the run's folder cannot be read: {error}"
            if self._above is not None or not self._is_contact:
                try:
                    return await patiently(self._connect(), _CONNECTING_SECONDS)
                except UNREACHED as error:
                    problem = str(error)
            await asyncio.sleep(pauses.next_seconds())
        above = f"node {self._seat.parent}'s" if self._is_contact else "this node's"
        raise self._timeout(f"{above} first worker cannot be reached: {problem}")

    def _look(self) -> None:
        """Look for the address of the contact above in the run folder, if it is not known."""
        if self._is_contact and self._above is None:
            self.looks += 1
            parent = self._seat.parent
            assert parent is not None
            self._above = found_address(self._run, self.secret, self._generation, parent)

    async def _connect(self) -> str:
        if self._is_contact:
            assert self._above is not None
            reader, writer = await asyncio.open_connection(*self._above)
            address: str = writer.get_extra_info("peername")[0]
        else:
            name = local_name(self.secret, self._generation, self._seat)
            reader, writer = await asyncio.open_unix_connection(name)
        try:
            channel = await Channel.open(reader, writer, self.secret, initiator=True)
            name = str(self._rank)
            channel.send(Hello(name=name, generation=self._generation, purpose="start"))
            welcome = await channel.receive()
            if not isinstance(welcome, Welcome):
                raise Forged(f"received {welcome.kind} instead of a welcome")
        except BaseException:
            writer.close()
            raise
        self._channel = channel
        return address if self._is_contact else welcome.address

    def _pauses(self) -> Pauses:
        if self._is_contact:
            return pauses_between_looks(self._seat.nodes)
        return Pauses(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, RENDEZVOUS_TIMEOUT_SECONDS)

    def _timeout(self, problem: str) -> RendezvousTimeout:
        return RendezvousTimeout(
            f"{problem} within {RENDEZVOUS_TIMEOUT_SECONDS:.0f} s",
            fix=f"find the workers without a log in {self._run.logs}; check that all nodes reach"
            f" each other and share {self._run.path}",
        )

    async def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._contact is not None:
            await self._contact.close()


def _named_nodes() -> tuple[str, int] | None:
    """Return the host and port that the environment gives of nodes; None if it does not."""
    named = os.environ.get(LEADER_VARIABLE)
    if not named:
        return None
    host, _, port = named.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise PacelineError(
            f"{LEADER_VARIABLE} is {named!r}, which names no host and port",
            fix="write HOST:PORT, with the first node's name or address",
        )
    return host, int(port)
