"""Growing pauses between tries, different on every process."""

import random
import time

_GROWTH = 1.5
_LEAST_PART = 0.5


class Pauses:
    """The pauses of one process that tries something again until a deadline.

    They grow from `first_seconds` to `most_seconds`. Each is a random part of its length, at least
    half of it: so the tries of many processes that started together spread out.
    """

    def __init__(self, first_seconds: float, most_seconds: float, timeout_seconds: float) -> None:
        self._next_seconds, self._most_seconds = first_seconds, most_seconds
        self._deadline = time.monotonic() + timeout_seconds

    @property
    def seconds_left(self) -> float:
        """Seconds to the deadline."""
        return max(0.0, self._deadline - time.monotonic())

    def next_seconds(self) -> float:
        """Return the length of the next pause."""
        longest = self._next_seconds
        self._next_seconds = min(longest * _GROWTH, self._most_seconds)
        return longest * random.uniform(_LEAST_PART, 1)  # noqa: S311 -- no secret
