"""Where members let each other in: who connects has a moment to prove that it knows the secret."""

import asyncio

from paceline.comm.signing import Forged
from paceline.membership.frames import Line
from paceline.membership.messages import Hello

MOST_WAITING = 64
"""Connections that have not said who they are; of more, the one that waits longest gives way: a
member needs milliseconds, so it is hardly ever one."""
WAITING_SECONDS = 5.0


class Door:
    """The connections of one listener that have not yet said who they are."""

    def __init__(
        self, secret: bytes, *, most: int = MOST_WAITING, seconds: float = WAITING_SECONDS
    ) -> None:
        self._secret, self._most, self._seconds = secret, most, seconds
        self._waiting: dict[asyncio.StreamWriter, None] = {}

    async def let_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Line, Hello]:
        """The line to a member, and who it is; an error of the connection, which is over then, for
        anybody else."""
        if len(self._waiting) >= self._most:
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.abort()
        self._waiting[writer] = None
        try:
            async with asyncio.timeout(self._seconds):
                line = await Line.opened(reader, writer, self._secret, called=False)
                first = await line.hear()
            if not isinstance(first, Hello):
                raise Forged(f"the first word was not hello but {first.kind}")
        except TimeoutError:
            writer.transport.abort()
            raise ConnectionResetError("the other end has not said who it is") from None
        except BaseException:
            writer.transport.abort()
            raise
        finally:
            self._waiting.pop(writer, None)
        return line, first
