"""The TCP connections of this worker's process groups: shut them down, and detect broken ones.

Gloo cannot abort a collective whose other end is silent. Shutting down its connections makes every
collective on them fail. When a worker dies, the kernel closes its connections, and Gloo closes its
own end before it raises. So the connections distinguish a lost peer from the user's own error. Both
rely on how Gloo works; `tests/comm/test_connections.py` fails when that changes.
"""

import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Endpoints = tuple[str, str]
"""The two ends of a connection, this process's end first, each as `address:port`."""

_ESTABLISHED = 1
"""The TCP state of a connection with two living ends, in the first byte of `TCP_INFO`."""


class Connections:
    """The TCP connections that were opened in `opening` blocks."""

    def __init__(self, foreign_ports: Callable[[], Collection[int]] = tuple) -> None:
        self._foreign_ports = foreign_ports
        """Ports of connections that another thread may open at the same time."""
        self._own: set[str] = set()
        self._established: set[str] = set()
        """The connections that had two living ends when their block ended."""
        self._before: set[str] | None = None
        self._lock = threading.Lock()
        self.shut_down = False
        """Whether `shut` was called since the last block began."""

    @contextmanager
    def opening(self) -> Iterator[set[str]]:
        """Track the connections that a block opens; yield a set that holds them afterwards."""
        with self._lock:
            self._before = set(_sockets().values())
            self.shut_down = False
        opened: set[str] = set()
        try:
            yield opened
            opened |= self._note_established()
        finally:
            self._note()
            with self._lock:
                self._before = None

    def forget(self, closing: set[str]) -> None:
        """Forget connections that this worker is about to close itself."""
        with self._lock:
            self._own -= closing
            self._established -= closing

    @property
    def broken(self) -> bool:
        """Whether a connection has lost its other end, or was closed after an error."""
        with self._lock:
            established = set(self._established)
        return bool(established - self._alive())

    def endpoints(self, identities: Collection[str]) -> list[Endpoints]:
        """Return the two ends of each of these connections."""
        foreign = set(self._foreign_ports())
        found: list[Endpoints] = []
        for descriptor, identity in _sockets().items():
            if identity in identities:
                with suppress(OSError), _connection(descriptor, foreign) as connection:
                    if connection is not None:
                        here, there = connection.getsockname(), connection.getpeername()
                        found.append((f"{here[0]}:{here[1]}", f"{there[0]}:{there[1]}"))
        return found

    def shut(self) -> None:
        """Shut down the connections and forget them; collectives that wait on them fail."""
        self._note()
        with self._lock:
            own, self._own = self._own, set()
            self._established = set()
            self.shut_down = True
        foreign = set(self._foreign_ports())
        for descriptor, identity in _sockets().items():
            if identity in own:
                with suppress(OSError):  # already closed, or a listener
                    _shut(descriptor, foreign)

    def _note(self) -> None:
        """Record the connections that the current block has opened so far."""
        with self._lock:
            if self._before is not None:
                self._own |= set(_sockets().values()) - self._before

    def _note_established(self) -> set[str]:
        alive = self._alive()
        with self._lock:
            opened = alive - (self._before or set())
            self._established |= opened
        return opened

    def _alive(self) -> set[str]:
        """Return the identities of this process's connections that have two living ends."""
        foreign = set(self._foreign_ports())
        alive = set()
        for descriptor, identity in _sockets().items():
            with suppress(OSError):  # already closed, or a listener
                if _is_established(descriptor, foreign):
                    alive.add(identity)
        return alive


def _sockets() -> dict[int, str]:
    """Return this process's sockets: descriptor and identity."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = entry.readlink().name
            if target.startswith("socket:"):
                found[int(entry.name)] = target
    return found


@contextmanager
def _connection(descriptor: int, foreign_ports: Collection[int]) -> Iterator[socket.socket | None]:
    """Yield a descriptor's TCP connection; None for another kind of socket or a foreign port."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family != socket.AF_INET or connection.type != socket.SOCK_STREAM:
            yield None
            return
        # A listener has no peer and raises here: shutting it down would end the process.
        ports = {connection.getpeername()[1], connection.getsockname()[1]}
        yield connection if ports.isdisjoint(foreign_ports) else None


def _is_established(descriptor: int, foreign_ports: Collection[int]) -> bool:
    with _connection(descriptor, foreign_ports) as connection:
        if connection is None:
            return False
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return state == _ESTABLISHED


def _shut(descriptor: int, foreign_ports: Collection[int]) -> None:
    with _connection(descriptor, foreign_ports) as connection:
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)
