"""A node's contact: it collects the arrivals of its node and of the nodes below, and answers them.

Each connection proves that it knows the run's secret, also one of the node itself.
"""

import asyncio
import hmac
import socket
from contextlib import suppress

from paceline.comm.signing import Forged
from paceline.membership.channel import Channel
from paceline.membership.control import UNREACHED
from paceline.membership.handshakes import Handshakes
from paceline.membership.messages import Arrivals, Conclusion, Welcome
from paceline.membership.patience import patiently
from paceline.membership.rendezvous.node_tree import NodeSeat
from paceline.specs import PacelineError

_MAX_STRANGERS = 256
_DELIVERY_SECONDS = 10.0
"""How long the conclusion is kept for workers that have arrived and lost their connection."""


def local_name(secret: bytes, generation: int, seat: NodeSeat) -> str:
    """Return the name of a contact's local socket, which only the run's workers can derive.

    It is an abstract name of Linux: it belongs to the node's network, and leaves no file behind.
    """
    about = f"rendezvous/{generation}/{seat.number}".encode()
    return f"\0paceline-{hmac.digest(secret, about, 'sha256').hex()[:32]}"


class Contact:
    """The listeners of one contact, for workers of its node and contacts of the nodes below."""

    def __init__(self, secret: bytes, generation: int, seat: NodeSeat) -> None:
        self._secret, self._generation, self._seat = secret, generation, seat
        self._handshakes = Handshakes(secret, most=_MAX_STRANGERS)
        self._expected = {*seat.local_ranks[1:], *seat.child_ranks}
        self._arrivals: dict[int, dict[int, str]] = {}
        self._complete, self._delivered = asyncio.Event(), asyncio.Event()
        self._answered: set[int] = set()
        self._conclusion: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._address = ""
        self._servers: list[asyncio.Server] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def listen(self, address: str, listener: socket.socket | None) -> None:
        """Accept workers of this node, which use the interface with this address, too, and contacts
        of other nodes on the listener."""
        self._address = address
        if listener is not None:
            server = await asyncio.start_server(self._accept, sock=listener, backlog=4096)
            self._servers.append(server)
        if len(self._seat.local_ranks) > 1:
            name = local_name(self._secret, self._generation, self._seat)
            try:
                server = await asyncio.start_unix_server(self._accept, name, backlog=1024)
            except OSError as error:
                raise PacelineError(
                    f"the socket for the workers of this node cannot be opened: {error}",
                    fix="see that no process of an earlier start of this run is left on the node",
                ) from None
            self._servers.append(server)

    async def collected(self, seconds: float) -> dict[int, str]:
        """Return the arrivals of all that are expected, by rank; raise a TimeoutError if some are
        missing."""
        if self._expected:
            await patiently(self._complete.wait(), seconds)
        return {rank: said for some in self._arrivals.values() for rank, said in some.items()}

    @property
    def missing(self) -> list[int]:
        """Ranks of the workers of this node, and contacts of the nodes below, not yet here."""
        return sorted(self._expected - self._arrivals.keys())

    async def answer(self, conclusion: str) -> None:
        """Send the conclusion to all that have arrived."""
        self._conclusion.set_result(conclusion)
        if self._expected:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._delivered.wait(), _DELIVERY_SECONDS)

    async def close(self) -> None:
        """Close the listeners and all connections."""
        for server in self._servers:
            server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine function, as in `Control`.
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(*UNREACHED):
                channel, hello = await self._handshakes.accept(reader, writer)
                if hello.purpose == "start" and hello.generation == self._generation:
                    await self._handle(channel, hello.name)
        finally:
            writer.close()

    async def _handle(self, channel: Channel, name: str) -> None:
        channel.send(Welcome(address=self._address))
        message = await channel.receive()
        rank = int(name) if name.isdecimal() else -1
        if not isinstance(message, Arrivals) or rank not in self._expected:
            raise Forged(f"received {message.kind} from {name} instead of its arrival")
        self._arrivals[rank] = message.said
        if self._arrivals.keys() == self._expected:  # compared only once as many have arrived
            self._complete.set()
        channel.send(Conclusion(said=await asyncio.shield(self._conclusion)))
        await channel.receive()  # its goodbye: without one it asks again
        self._answered.add(rank)
        if self._answered == self._expected:
            self._delivered.set()
