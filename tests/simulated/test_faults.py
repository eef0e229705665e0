"""Devices that are sick or slow, and processes that fork.

Sources: "Error checking" of the CUDA C++ Programming Guide (asynchronous and sticky errors);
cudaErrorECCUncorrectable and cudaErrorAssert of the CUDA Runtime API; torch's notes on
multiprocessing (CUDA in multiprocessing, poison fork).
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from paceline_simulated import core
from paceline_simulated import torch_module as sim
from simulated_devices import held, on_sim


@on_sim(devices=2)
def test_every_call_to_a_sick_device_raises() -> None:
    x = torch.ones(3, device="sim")
    event = sim.current_stream().record_event()
    side = sim.Stream()
    sim.synchronize()  # a sick device drops what is queued
    core.sicken(0)
    calls: list[Callable[[], object]] = [
        lambda: x + 1,
        lambda: x.add_(1),
        lambda: torch.empty(1, device="sim"),
        x.tolist,
        lambda: torch.ones(3).to("sim"),
        sim.synchronize,
        side.synchronize,
        side.query,
        event.query,
        event.synchronize,
        event.record,
        lambda: side.wait_event(event),
    ]
    for call in calls:
        with pytest.raises(torch.AcceleratorError, match="sim:0: uncorrectable ECC") as raised:
            call()
        assert vars(raised.value)["error_code"] == core.UNCORRECTABLE_ECC
    assert torch.ones(3, device="sim:1").sum().item() == 3
    core.heal(0)
    assert (x + 1).tolist() == [2.0] * 3


@on_sim()
def test_a_failed_kernel_shows_later_and_stays() -> None:
    """An asynchronous error is returned by a later call, and by all that follow."""
    table, index = torch.zeros(3, 3, device="sim"), torch.tensor([7], device="sim")
    F.embedding(index, table)  # no error here
    with pytest.raises(torch.AcceleratorError, match="index out of range"):
        sim.synchronize()
    with pytest.raises(torch.AcceleratorError, match="index out of range"):
        torch.empty(1, device="sim")


@on_sim()
def test_mistakes_that_shapes_show_raise_at_once_and_leave_the_device_well() -> None:
    x = torch.ones(3, 4, device="sim")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        x @ x
    assert x.sum().item() == 12


@on_sim()
def test_nothing_hangs_on_a_sick_device() -> None:
    """Queued kernels are dropped; what orders streams is not."""
    side = sim.Stream()
    x = torch.ones(3, device="sim")
    sim.synchronize()  # or its fill could still be queued, and be dropped, too
    with held():
        x += 1
        side.wait_stream(sim.current_stream())
        core.sicken(0)
    with pytest.raises(torch.AcceleratorError):
        side.synchronize()
    assert core.alias(x)[0] == 1


@on_sim(devices=2)
def test_a_device_can_be_slow() -> None:
    core.set_delay_us(20_000, device=1)
    seconds = []
    for name in ("sim:0", "sim:1"):
        x = torch.ones(3, device=name)
        start = time.perf_counter()
        for _ in range(5):
            x += 1
        torch.accelerator.synchronize(name)
        seconds.append(time.perf_counter() - start)
    assert seconds[1] >= 0.1
    core.set_delay_us(0)


@on_sim()
def test_a_fork_after_the_first_use_cannot_use_devices() -> None:
    x = torch.ones(3, device="sim")
    sim.synchronize()
    child = os.fork()
    if child == 0:
        refused = sim._is_in_bad_fork()
        try:
            x + 1
            refused = False
        except RuntimeError as error:
            refused &= "forked process" in str(error)
        os._exit(0 if refused else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (x + 1).tolist() == [2.0] * 3


def test_a_process_ends_with_work_in_its_queues() -> None:
    """What nobody waited for is dropped with the process, as a CUDA context drops it."""
    program = """if True:
        import torch
        from paceline_simulated import core, device
        x = torch.ones(3, device="sim")
        core.set_delay_us(1_000_000)
        for _ in range(600):
            x += 1
        core.enqueue(0, lambda: print("ran"))
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
