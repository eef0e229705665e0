"""Device memory in the order of streams, its limit and counters, and pinned host memory.

Sources: torch's `Tensor.record_stream` and "CUDA semantics" (memory management, pinned memory
buffers); "API synchronization behavior" of the CUDA Runtime API.
"""

import pytest
import torch

from paceline_simulated import core
from paceline_simulated import torch_module as sim
from paceline_simulated.waits import host_waits, reset
from simulated_devices import held, on_sim

MB = 1 << 20


def _freed_before_another_stream_reads(*, record: bool) -> float:
    side, main = sim.Stream(), sim.current_stream()
    x = torch.ones(1000, device="sim")
    side.wait_stream(main)
    with sim.stream(side), held():
        y = x * 2
        if record:
            x.record_stream(side)
        del x
        with sim.stream(main):
            torch.zeros(1000, device="sim")  # the block again, unless it is held back
            main.synchronize()
    side.synchronize()
    return float(core.alias(y)[0])


@on_sim()
def test_memory_that_another_stream_uses_must_be_recorded() -> None:
    """Tensor.record_stream: the allocator knows only the stream where a tensor was allocated."""
    assert _freed_before_another_stream_reads(record=True) == 2
    assert _freed_before_another_stream_reads(record=False) != 2


@on_sim()
def test_freed_memory_is_poisoned_when_it_is_reused() -> None:
    x = torch.ones(1000, device="sim")
    address = x.data_ptr()
    sim.synchronize()
    del x
    y = torch.empty(1000, device="sim")
    sim.synchronize()
    assert y.data_ptr() == address
    assert core.alias(y).isnan().all()
    core.set_poison(core.Poison.NEVER)
    y.fill_(5)
    del y
    z = torch.empty(1000, device="sim")
    sim.synchronize()
    assert core.alias(z)[0] == 5


@on_sim()
def test_the_stream_that_allocated_may_free_at_once() -> None:
    """Its queued kernels run before those of the next owner of the block."""
    with held():
        x = torch.ones(1000, device="sim")
        y = x * 2
        del x
        z = torch.zeros(1000, device="sim")
    assert y.sum().item() == 2000
    assert z.sum().item() == 0


@on_sim(devices=2)
def test_memory_is_bounded_per_device() -> None:
    """torch.OutOfMemoryError after the cache was given back, as torch.cuda raises it."""
    core.set_limit(4 * MB)
    kept = torch.empty(2 * MB, dtype=torch.uint8, device="sim")
    for size in (MB, 2 * MB):  # the second needs the cached block of the first
        torch.empty(size, dtype=torch.uint8, device="sim")
    assert sim.memory_stats()["num_alloc_retries"] == 1
    with pytest.raises(torch.OutOfMemoryError, match="sim:0 out of memory"):
        torch.empty(3 * MB, dtype=torch.uint8, device="sim")
    torch.empty(3 * MB, dtype=torch.uint8, device="sim:1")
    assert sim.mem_get_info(0)[1] == 4 * MB
    assert sim.get_device_properties(0).total_memory == 4 * MB
    assert kept.numel() == sim.memory_allocated(0)


@on_sim()
def test_peaks_are_counted() -> None:
    """torch.accelerator's and torch.cuda's counters."""
    x = torch.empty(MB, dtype=torch.uint8, device="sim")
    y = torch.empty(2 * MB, dtype=torch.uint8, device="sim")
    del y
    assert sim.memory_allocated() == torch.accelerator.memory_allocated() == x.numel()
    assert sim.max_memory_allocated() == torch.accelerator.max_memory_allocated() == 3 * MB
    assert sim.memory_reserved() == 3 * MB
    sim.reset_peak_memory_stats()
    assert sim.max_memory_allocated() == MB
    sim.empty_cache()
    assert sim.memory_reserved() == MB


@on_sim()
def test_copies_from_pinned_memory_read_it_later() -> None:
    """Pinned and non_blocking: the copy overlaps with the host, which must leave the buffer."""
    source = torch.ones(1000).pin_memory()
    assert source.is_pinned()
    target = torch.zeros(1000, device="sim")
    reset()
    with held():
        target.copy_(source, non_blocking=True)
        source.fill_(7)
    assert host_waits().total() == 0
    assert target[0].item() == 7


@on_sim()
def test_copies_from_pageable_memory_are_staged() -> None:
    """The driver may also wait for the stream before it stages them; here a note says so."""
    source = torch.ones(1000)
    assert not source.is_pinned()
    target = torch.zeros(1000, device="sim")
    reset()
    with held():
        target.copy_(source, non_blocking=True)
        source.fill_(7)
    assert host_waits().total() == 0
    assert core.notes() == {"may_wait:host_to_device from pageable memory": 1}
    assert target[0].item() == 1
    target.copy_(source)
    assert host_waits().total() == 2, "torch waits for a copy that is not non_blocking"


@on_sim()
def test_copies_to_pinned_memory_arrive_later() -> None:
    """To pageable memory, the copy completes before it returns (CUDA 11.0; newer: it may)."""
    source = torch.ones(1000, device="sim")
    pinned, pageable = torch.zeros(1000).pin_memory(), torch.zeros(1000)
    reset()
    with held():
        pinned.copy_(source, non_blocking=True)
        event = sim.current_stream().record_event()
        assert pinned[0] == 0
    assert host_waits().total() == 0
    event.synchronize()
    assert pinned[0] == 1
    pageable.copy_(source, non_blocking=True)
    assert pageable[0] == 1
    assert [wait.kind for wait in host_waits()] == ["synchronize", "read"]


@on_sim()
def test_pinned_memory_outlives_its_tensor_until_it_is_copied() -> None:
    """ATen/core/CachingHostAllocator.h holds a block back until the events of its copies."""
    target = torch.zeros(MB, device="sim")
    with held():
        target.copy_(torch.ones(MB).pin_memory(), non_blocking=True)
        others = [torch.full((MB,), 3.0).pin_memory() for _ in range(4)]
    assert target.sum().item() == MB
    assert len(others) == 4


@on_sim()
def test_a_loader_pins_for_this_device() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    for (batch,) in loader:
        assert batch.is_pinned()
        assert batch.to("sim", non_blocking=True).sum().item() == batch.sum()
