"""The connections of process groups, so that whoever waits in one of them can be made to leave.

Gloo has no way to end an exchange whose other end is silent: its connections are shut instead, and
every exchange on them fails. This leans on how Gloo works: a test fails where that changes.
"""

import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Sockets:
    """The TCP connections that were opened in certain blocks."""

    def __init__(self, foreign_ports: Callable[[], Collection[int]]) -> None:
        self._foreign_ports = foreign_ports
        """Of connections that another thread may open meanwhile."""
        self._own: set[str] = set()
        self._before: set[str] | None = None
        self._lock = threading.Lock()

    @contextmanager
    def opening(self) -> Iterator[None]:
        """A block that opens connections."""
        with self._lock:
            self._before = set(_sockets().values())
        try:
            yield
        finally:
            self._note()
            with self._lock:
                self._before = None

    def _note(self) -> None:
        """Take note of what a block has opened so far."""
        with self._lock:
            if self._before is not None:
                self._own |= set(_sockets().values()) - self._before

    def shut(self) -> None:
        """Shut the connections, so that whoever waits for one of them fails, and forget them."""
        self._note()
        with self._lock:
            own, self._own = self._own, set()
        foreign = set(self._foreign_ports())
        for descriptor, identity in _sockets().items():
            if identity in own:
                with suppress(OSError):  # it is closed already, or it listens
                    _shut(descriptor, foreign)


def _sockets() -> dict[int, str]:
    """This process's sockets: descriptor and identity."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = entry.readlink().name
            if target.startswith("socket:"):
                found[int(entry.name)] = target
    return found


def _shut(descriptor: int, foreign_ports: Collection[int]) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family != socket.AF_INET or connection.type != socket.SOCK_STREAM:
            return
        # A socket that listens has no other end: shutting it would end the process.
        ports = {connection.getpeername()[1], connection.getsockname()[1]}
        if ports.isdisjoint(foreign_ports):
            connection.shutdown(socket.SHUT_RDWR)
