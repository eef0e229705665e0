"""Waits of the host for a device, with the line of Python that caused each."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from paceline_simulated import core

_NOT_THE_CAUSE = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
"""Folders whose lines only pass a call on."""


class HostWait(NamedTuple):
    """One place where the host waits."""

    kind: str
    """`read`, `copy`, `synchronize` or `memory`."""
    what: str
    file: str
    """Empty in a thread of autograd that runs no Python."""
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.what}) at {self.file}:{self.line} in {self.function}"


class _Watch:
    """The waits since the last reset."""

    def __init__(self) -> None:
        self.seen: Counter[HostWait] = Counter()
        self.strict_levels = 0

    def notice(self, kind: str, what: str) -> str:
        """Count a wait; return the error to raise, or an empty text."""
        wait = HostWait(kind, what, *_cause())
        self.seen[wait] += 1
        return f"sim: strict mode: the host waits for the device: {wait}" * bool(self.strict_levels)


def _cause() -> tuple[str, int, str]:
    """The innermost line of Python outside torch."""
    frame = sys._getframe()  # extract_stack would read source files
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_CAUSE):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return "", 0, "autograd"
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name


_watch = _Watch()


def listen() -> None:
    """Begin to count waits."""
    core.set_wait_listener(_watch.notice)


def host_waits() -> Counter[HostWait]:
    """Return how often the host waited since `reset`, by place; `.total()` is their sum."""
    return Counter(_watch.seen)


def reset() -> None:
    """Forget all waits and notes."""
    _watch.seen.clear()
    core.clear_notes()


@contextmanager
def strict() -> Iterator[None]:
    """Raise a RuntimeError where the host waits, as `torch.cuda.set_sync_debug_mode("error")`."""
    _watch.strict_levels += 1
    try:
        yield
    finally:
        _watch.strict_levels -= 1
