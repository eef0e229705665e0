"""Kernels, timed on an asynchronous device: events measure the device, not the host.

Source: "CUDA semantics" of torch's documentation, "Asynchronous execution": a measurement without
synchronization is wrong; use torch events with timing.
"""

import time
from pathlib import Path

from paceline.comm.device_kind import device_kind
from paceline.specs import Placement
from paceline.train.probing.device_clock import DeviceClock
from paceline.train.probing.kernel_grids import KernelCase, kernel_grids
from paceline_simulated import core
from simulated_devices import run_sim_ranks

SECONDS = 0.05


def _of_the_device() -> float:
    clock = DeviceClock(device_kind().bind(Placement()))
    return clock.seconds(lambda: core.enqueue(0, lambda: time.sleep(SECONDS)))


def test_a_kernel_takes_the_devices_time(tmp_path: Path) -> None:
    """The host queues it in microseconds; without waiting, that would be its time."""
    (found,) = run_sim_ranks(_of_the_device, 1, tmp_path)
    assert SECONDS <= found < 10 * SECONDS


def _of_the_host() -> float:
    clock = DeviceClock(device_kind().bind(Placement()))

    def call() -> None:
        time.sleep(SECONDS)
        core.enqueue(0, lambda: None)

    return clock.seconds(call)


def test_a_slow_host_is_not_part_of_it(tmp_path: Path) -> None:
    """The device has other work until all calls are queued."""
    (found,) = run_sim_ranks(_of_the_host, 1, tmp_path)
    assert found < SECONDS / 2


def _grids() -> list[tuple[str, int, float]]:
    device = device_kind().bind(Placement())
    axes = ((16, 64), (64, 128), (64, 128))
    cases = [
        KernelCase("linear", "fp32", axes),
        KernelCase("attention", "fp32", ((1, 4), (16, 64), (32, 64)), causal=True),
    ]
    done: list[None] = []
    found = kernel_grids(cases, device, 1 << 30, 40.0, lambda: done.append(None))
    said: list[tuple[str, int, float]] = [
        (each.kernel, len(each.variants), min(*each.forward_seconds, *each.backward_seconds))
        for each in found
    ]
    assert len(done) == len(cases)
    return said


def test_grids_of_an_accelerator_are_measured(tmp_path: Path) -> None:
    (found,) = run_sim_ranks(_grids, 1, tmp_path)
    assert [each[:2] for each in found] == [("linear", 2), ("attention", 2)]
    assert min(least for _, _, least in found) > 0
