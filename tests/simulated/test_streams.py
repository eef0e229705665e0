"""Streams, events and Python kernels.

Sources: "CUDA semantics" of torch's documentation (asynchronous execution, CUDA streams), and
the CUDA C++ Programming Guide, "Asynchronous Concurrent Execution".
"""

import time

import pytest
import torch

from paceline_simulated import core
from paceline_simulated import torch_module as sim
from paceline_simulated.waits import host_waits, reset
from simulated_devices import held, on_sim


@on_sim()
def test_kernels_are_queued_and_run_in_order() -> None:
    """torch's CUDA semantics, "Asynchronous execution": enqueued, and executed later, in order."""
    x = torch.zeros(1000, device="sim")
    with held():
        for _ in range(5):
            x = x * 2 + 1
        assert not sim.current_stream().query()
        assert core.alias(x)[0].isnan(), "the result is there before its kernel has run"
    assert x[0].item() == 31


@on_sim()
def test_a_stream_does_not_wait_for_another_one_unless_told() -> None:
    """Operations in different streams may run in any relative order (torch: CUDA streams)."""
    for waits in (True, False):
        x = torch.zeros(1000, device="sim")
        side = sim.Stream()
        sim.synchronize()  # the side stream may not read before the fill
        with held():
            x += 1
            if waits:
                side.wait_stream(sim.current_stream())
            with sim.stream(side):
                y = x * 2
            if not waits:
                side.synchronize()
        side.synchronize()
        assert core.alias(y)[0] == (2 if waits else 0)
        sim.synchronize()


@on_sim()
def test_events_order_streams_and_measure_time() -> None:
    """cudaEventRecord, cudaStreamWaitEvent, cudaEventElapsedTime (CUDA Runtime API)."""
    start, end = (sim.Event(enable_timing=True) for _ in range(2))
    assert start.query(), "an event that was never recorded is complete"
    side = sim.Stream()
    start.record()
    start.synchronize()  # its time is that of the device, which may be late
    with held():
        end.record()
        side.wait_event(end)
        assert not end.query()
        assert not side.query()
        time.sleep(0.05)
    end.synchronize()
    assert 50 <= start.elapsed_time(end) < 5_000
    side.synchronize()


@on_sim()
def test_an_event_waits_for_what_was_recorded_last() -> None:
    """A second cudaEventRecord overwrites the event; earlier waits keep the earlier point."""
    event = sim.Event()
    event.record()
    side = sim.Stream()
    side.wait_event(event)
    with held():
        event.record()
        side.synchronize()  # would hang if it waited for the second record
        assert not event.query()
    event.synchronize()


@on_sim()
def test_streams_come_from_a_pool_of_32() -> None:
    """c10/cuda/CUDAStream.cpp: 32 streams per device and priority, given out in turn."""
    made = [sim.Stream() for _ in range(33)]
    assert len({stream.stream_id for stream in made}) == 32
    assert made[0] == made[32]
    assert sim.Stream(priority=-1) not in made


@on_sim(devices=2)
def test_devices_have_streams_of_their_own() -> None:
    """A copy between devices waits for both current streams (ATen/native/cuda/Copy.cu)."""
    a = torch.ones(100, device="sim:0")
    b = torch.zeros(100, device="sim:1")
    with held(0):
        a += 1
        b += 1
        sim.synchronize(1)  # not held
        assert core.alias(b)[0] == 1
        b += a.to("sim:1")
        assert not sim.current_stream(1).query()
    assert b[0].item() == 3
    with sim.device(1):
        assert torch.empty(1, device="sim").device.index == 1
    assert sim.current_device() == 0


@on_sim(devices=2)
def test_tensors_of_two_devices_do_not_mix() -> None:
    """As torch's CUDA kernels check; numbers on the host mix with any device."""
    a = torch.ones(3, device="sim:0")
    for other in (torch.ones(3, device="sim:1"), torch.ones(3)):
        with pytest.raises(RuntimeError, match="same device"):
            a + other
    assert (a + torch.tensor(1.0)).sum().item() == 6


@on_sim()
def test_a_python_kernel_that_raises_makes_the_device_sick() -> None:
    core.enqueue(0, lambda: 1 / 0)
    with pytest.raises(torch.AcceleratorError, match="ZeroDivisionError"):
        sim.synchronize()


@on_sim(devices=2)
def test_each_device_has_an_autograd_thread() -> None:
    """Backward runs on the device and stream of its forward (torch: CUDA semantics, backward)."""
    w = torch.ones(4, device="sim:0", requires_grad=True)
    side = sim.Stream()
    side.wait_stream(sim.current_stream())
    with sim.stream(side):
        loss = (w * 3).to("sim:1").square().sum()
    reset()
    loss.backward()  # type: ignore[no-untyped-call]
    assert host_waits().total() == 0
    sim.current_stream().wait_stream(side)
    assert w.grad is not None
    assert w.grad.tolist() == [18.0] * 4
