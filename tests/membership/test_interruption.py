"""Who cannot leave a broken exchange ends; who computes is waited for."""

import asyncio
import ctypes
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.comm.connections import Connections
from paceline.comm.health import GroupHealth
from paceline.membership import interruption
from paceline.membership.interruption import interrupt_until

_PR_SET_NAME = 15


class Ends:
    """Hooks that count."""

    def __init__(self) -> None:
        self.interrupts = self.ends = 0

    def interrupt(self) -> None:
        """Nobody listens."""
        self.interrupts += 1

    def work_done(self) -> float:
        """As on an accelerator that a thread waits for, whatever the CPU does."""
        return 0.0

    def kill_process(self) -> None:
        """Not really."""
        self.ends += 1


def _left_after(seconds: float, monkeypatch: pytest.MonkeyPatch) -> Ends:
    monkeypatch.setattr(interruption, "_STUCK_SECONDS", 0.5)
    hooks, end = Ends(), time.monotonic() + seconds
    asyncio.run(interrupt_until(lambda: time.monotonic() > end, cast("Any", hooks)))
    return hooks


def test_who_waits_for_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _left_after(0.3, monkeypatch).ends == 0
    hooks = _left_after(0.9, monkeypatch)
    assert hooks.ends == 1
    assert hooks.interrupts > 4


@pytest.mark.parametrize(("name", "ends"), [("backward", 0), ("gloo_tcp_loop", 1)])
def test_who_computes_is_waited_for(name: str, ends: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not for a thread of Gloo's, which may turn in circles over a connection that is shut."""
    done = threading.Event()

    def compute() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
        while not done.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert _left_after(0.9, monkeypatch).ends == ends
    finally:
        done.set()
        thread.join()


def test_an_interruption_during_an_update_is_shorter_than_the_lease() -> None:
    """The control plane was silent for a second: others took it for lost, and ended its process."""
    lease_seconds, silences = 0.6, [0.0]
    health = GroupHealth(Connections(set), lambda: True, lease_seconds)
    health._is_updating = True
    hooks = SimpleNamespace(
        interrupt=health.begin_abort, work_done=float, kill_process=lambda: None
    )
    end = time.monotonic() + 1.5

    async def listen() -> None:
        while True:
            slept_at = time.monotonic()
            await asyncio.sleep(0.01)
            silences.append(time.monotonic() - slept_at)

    async def interrupted() -> None:
        listening = asyncio.create_task(listen())
        await interrupt_until(lambda: time.monotonic() > end, cast("Any", hooks))
        listening.cancel()

    asyncio.run(interrupted())
    assert max(silences) < lease_seconds
