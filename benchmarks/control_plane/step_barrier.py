"""Steps without torch: a STAND-IN for a generation's collectives, over real TCP connections.

The first member of a generation listens. All members, itself included, send it each step's digest,
and all continue when all digests are there and equal. When one connection closes, it closes all, so
that the loss of a member breaks the step on every member at once, as it does for Gloo and NCCL.
"""

import json
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

CONNECT_SECONDS = 60.0
_TRY_SECONDS, _PAUSE_SECONDS = 0.5, 0.02
_LARGEST_LINE = 1 << 20


class StepBroken(ConnectionError):
    """A connection of the generation's steps has closed."""


class Server:
    """The barrier's listener, served by a thread of its own once a generation begins."""

    def __init__(self, address: str) -> None:
        self._listener = socket.create_server((address, 0), backlog=4096)
        self.port: int = self._listener.getsockname()[1]
        self._closed = False

    def serve(
        self,
        members: int,
        pause_seconds: float,
        decided: Callable[[int], None],
        diverged: Callable[[], None],
    ) -> None:
        """Serve a generation's steps; `decided` is called before a step is announced."""
        work = (members, pause_seconds, decided, diverged)
        threading.Thread(target=self._serve, args=work, daemon=True).start()

    def close(self) -> None:
        """End the steps for all members."""
        self._closed = True
        with suppress(OSError):  # the serving thread has closed it
            self._listener.shutdown(socket.SHUT_RDWR)

    def _serve(
        self,
        members: int,
        pause_seconds: float,
        decided: Callable[[int], None],
        diverged: Callable[[], None],
    ) -> None:
        selector = selectors.DefaultSelector()
        parts: dict[socket.socket, bytes] = {}
        connected: list[socket.socket] = []
        try:
            selector.register(self._listener, selectors.EVENT_READ)
            first = True
            while not self._closed:
                said = self._all_said(selector, parts, connected, members)
                if said is None:
                    return
                newest = max(said, key=lambda each: (each["trained"], each["step"]))
                answer = {"step": newest["step"], "state": newest if first else None}
                if not first:
                    if len({each["digest"] for each in said}) > 1:
                        diverged()
                        return
                    time.sleep(pause_seconds)
                    if self._closed or _any_closed(connected):
                        return
                    decided(newest["step"] + 1)
                    answer |= {"go": True, "wanted": any(each["wanted"] for each in said)}
                first = False
                line = json.dumps(answer).encode() + b"\n"
                for each in connected:
                    each.sendall(line)
        except OSError:
            return
        finally:
            selector.close()
            for each in [*connected, self._listener]:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _all_said(
        self,
        selector: selectors.BaseSelector,
        parts: dict[socket.socket, bytes],
        connected: list[socket.socket],
        members: int,
    ) -> list[dict[str, Any]] | None:
        """Return one line of each member; None when a connection has closed."""
        said: list[dict[str, Any]] = []
        while len(said) < members:
            for key, _ in selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._listener:
                    channel, _ = source.accept()
                    channel.settimeout(CONNECT_SECONDS)
                    selector.register(channel, selectors.EVENT_READ)
                    connected.append(channel)
                    parts[channel] = b""
                    continue
                got = source.recv(_LARGEST_LINE)
                if not got:
                    return None
                parts[source] += got
                while b"\n" in parts[source]:
                    line, _, parts[source] = parts[source].partition(b"\n")
                    said.append(json.loads(line))
        return said


class Client:
    """A member's end of the barrier."""

    def __init__(self, interrupted: Callable[[], bool]) -> None:
        self._interrupted = interrupted
        self._socket: socket.socket | None = None
        self._rest = b""

    def connect(self, address: str, port: int) -> None:
        """Connect to the generation's first member."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                self._socket = socket.create_connection((address, port), _TRY_SECONDS)
                break
            except OSError as error:
                if self._interrupted() or time.monotonic() > deadline:
                    raise StepBroken(str(error)) from None
                time.sleep(_PAUSE_SECONDS)
        self._socket.settimeout(None)
        self._rest = b""
        if self._interrupted():
            self.interrupt()

    def exchange(self, said: dict[str, Any]) -> dict[str, Any]:
        """Send this member's line and return the answer that all members get."""
        assert self._socket is not None
        try:
            self._socket.sendall(json.dumps(said).encode() + b"\n")
            while b"\n" not in self._rest:
                got = self._socket.recv(_LARGEST_LINE)
                if not got:
                    raise StepBroken("the steps' connection has closed")
                self._rest += got
        except OSError as error:
            raise StepBroken(str(error)) from None
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def interrupt(self) -> None:
        """Make a waiting exchange fail; from any thread."""
        waiting = self._socket
        if waiting is not None:
            with suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _any_closed(connected: list[socket.socket]) -> bool:
    """Return whether a member has closed its connection while the others computed."""
    poll = select.poll()
    for each in connected:
        poll.register(each, select.POLLRDHUP)
    return bool(poll.poll(0))
