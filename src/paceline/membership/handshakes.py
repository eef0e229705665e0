"""Incoming connections that have not yet proved that they know the job's secret."""

import asyncio

from paceline.comm.signing import Forged
from paceline.membership.channel import Channel
from paceline.membership.messages import Hello

MAX_PENDING = 64
"""Maximum pending handshakes. One more aborts the oldest: a member needs milliseconds, so the
oldest is hardly ever a member's."""
TIMEOUT_SECONDS = 5.0


class Handshakes:
    """The pending handshakes of one listener."""

    def __init__(
        self, secret: bytes, *, most: int = MAX_PENDING, seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._secret, self._most, self._seconds = secret, most, seconds
        self._pending: dict[asyncio.StreamWriter, None] = {}

    async def accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Channel, Hello]:
        """Return the channel to a member and its first message.

        Abort the connection and raise a ConnectionError if the other end does not identify itself
        as a member in time.
        """
        if len(self._pending) >= self._most:
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.transport.abort()
        self._pending[writer] = None
        try:
            async with asyncio.timeout(self._seconds):
                channel = await Channel.open(reader, writer, self._secret, initiator=False)
                first = await channel.receive()
            if not isinstance(first, Hello):
                raise Forged(f"the first message was not hello but {first.kind}")
        except TimeoutError:
            writer.transport.abort()
            raise ConnectionResetError("the other end did not identify itself in time") from None
        except BaseException:
            writer.transport.abort()
            raise
        finally:
            self._pending.pop(writer, None)
        return channel, first
