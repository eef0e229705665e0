"""Incoming connections that have not yet proved that they know the job's secret."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

MAX_STRANGERS = 64
"""Maximum strangers of a listener. One more ends the oldest: a member needs milliseconds for its
proof, so the oldest is hardly ever a member's."""
PROOF_SECONDS = 5.0
"""Time limit for the proof."""

_Connection = TypeVar("_Connection", bound=Hashable)


class Strangers(Generic[_Connection]):
    """The strangers of one listener, oldest first; safe from any thread."""

    def __init__(self, end: Callable[[_Connection], None], most: int = MAX_STRANGERS) -> None:
        self._end, self._most = end, most
        self._waiting: dict[_Connection, None] = {}
        self._lock = threading.Lock()

    def add(self, connection: _Connection) -> None:
        """Add a new connection; end the oldest if there are too many."""
        with self._lock:
            oldest = next(iter(self._waiting)) if len(self._waiting) >= self._most else None
            if oldest is not None:
                del self._waiting[oldest]
            self._waiting[connection] = None
        if oldest is not None:
            self._end(oldest)

    def remove(self, connection: _Connection) -> None:
        """Remove a connection that has proved the secret, or has ended."""
        with self._lock:
            self._waiting.pop(connection, None)
