"""Handshakes with incoming connections, which must prove that they know the job's secret."""

import asyncio

from paceline.comm.signing import Forged
from paceline.comm.strangers import MAX_STRANGERS, PROOF_SECONDS, Strangers
from paceline.membership.channel import Channel
from paceline.membership.messages import Hello
from paceline.membership.patience import patiently


class Handshakes:
    """The pending handshakes of one listener."""

    def __init__(
        self, secret: bytes, *, most: int = MAX_STRANGERS, seconds: float = PROOF_SECONDS
    ) -> None:
        self._secret, self._seconds = secret, seconds
        self._strangers: Strangers[asyncio.StreamWriter] = Strangers(_abort, most)

    async def accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Channel, Hello]:
        """Return the channel to a member and its first message.

        Abort the connection and raise a ConnectionError if the other end does not identify itself
        as a member in time.
        """
        self._strangers.add(writer)
        try:
            return await patiently(self._proved(reader, writer), self._seconds)
        except TimeoutError:
            _abort(writer)
            raise ConnectionResetError("the other end did not identify itself in time") from None
        except BaseException:
            _abort(writer)
            raise
        finally:
            self._strangers.remove(writer)

    async def _proved(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Channel, Hello]:
        channel = await Channel.open(reader, writer, self._secret, initiator=False)
        first = await channel.receive()
        if not isinstance(first, Hello):
            raise Forged(f"the first message was not hello but {first.kind}")
        return channel, first


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
