"""A worker that waits for its device is not taken for one that works, although its CPU spins.

Before, CPU time counted as work: a thread in a synchronization of CUDA uses a whole core, so a hang
was never found.
"""

import threading
import time
from functools import partial

import torch

from simulated_devices import on_sim

_SECONDS = 3.0
"""Longer than a busy machine leaves a process without a core."""


@on_sim()
def test_spinning_is_no_work() -> None:
    from paceline.train.elastic.watchdog import Watchdog
    from paceline_simulated.kind import DEVICE

    device, interrupted = torch.device("sim", 0), threading.Event()
    watchdog = Watchdog(_SECONDS, interrupted.set, partial(DEVICE.work_done, device))
    watchdog.moved()
    weight = torch.ones(4, device=device)
    event = torch.Event(device=device)
    for _ in range(3):  # a long step
        end = time.monotonic() + _SECONDS / 2
        while time.monotonic() < end:
            weight = weight * 1.0
            time.sleep(0.005)
        event.record()
    assert not interrupted.is_set()
    deadline = time.monotonic() + 20
    while not interrupted.is_set():  # as a host that waits for its device
        event.query()
        assert time.monotonic() < deadline
    watchdog.close()


@on_sim()
def test_a_thread_that_spins_after_an_abort_ends_its_process() -> None:
    import asyncio
    from typing import Any, cast
    from unittest import mock

    from paceline.membership import interruption
    from paceline_simulated.kind import DEVICE

    over = threading.Event()
    hooks = mock.Mock()
    hooks.work_done = partial(DEVICE.work_done, torch.device("sim", 0))
    hooks.kill_process.side_effect = over.set

    def spin() -> None:
        while not over.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    with mock.patch.object(interruption, "_SPIN_SECONDS", _SECONDS):
        asyncio.run(interruption.interrupt_until(over.is_set, cast("Any", hooks)))
    thread.join()
    assert hooks.kill_process.call_count == 1
