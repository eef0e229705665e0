"""A lost peer, an abort, split communicators, and two communicators in different orders.

Sources: NCCL user guide, "Fault Tolerance" (`ncclCommAbort` ends kernels that wait for a peer) and
"Using multiple NCCL communicators concurrently"; ProcessGroupNCCL.cpp (`WorkNCCL::wait` orders
streams; an aborted communicator refuses work); NeMo-RL pull request 3591 (aborting a parent leaves
communicators that were split from it).
"""

import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks
from simulated.simccl_ranks import ends, join, stays_open


def _without_watchdog(folder: Path) -> int:
    import os

    os.environ["SIMCCL_ASYNC_ERROR_HANDLING"] = "0"
    return join(folder)


def test_abort_ends_a_collective_and_leaves_partial_sums(tmp_path: Path) -> None:
    run_ranks(_abort, 2, tmp_path, tmp_path)


def _abort(folder: Path) -> None:
    if _without_watchdog(folder) == 1:
        return  # never comes to the collective
    values = torch.full((4,), 1.0, device="sim")
    work = dist.all_reduce(values, async_op=True)
    assert work is not None
    work.wait()  # of the stream: a host that waited would do so for ever
    values += 1  # queued behind the collective
    assert stays_open(work)
    dist.group.WORLD.abort()  # type: ignore[union-attr]
    assert ends(work.is_completed)
    assert values.tolist() == [2.0] * 4  # the sum would be 3, and no error says so
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(values)


def test_aborting_a_parent_does_not_release_what_was_split_from_it(tmp_path: Path) -> None:
    run_ranks(_abort_parent, 2, tmp_path, tmp_path)


def _abort_parent(folder: Path) -> None:
    rank = _without_watchdog(folder)
    child = dist.split_group(split_ranks=[[0, 1]])
    assert child is not None
    dist.barrier()
    if rank == 1:
        return
    work = dist.all_reduce(torch.ones(1, device="sim"), group=child, async_op=True)
    assert work is not None
    dist.group.WORLD.abort()  # type: ignore[union-attr]
    assert stays_open(work)
    child.abort()
    assert ends(work.is_completed)


def test_different_orders_of_two_communicators_deadlock(tmp_path: Path) -> None:
    run_ranks(_different_orders, 2, tmp_path, tmp_path)


def _different_orders(folder: Path) -> None:
    rank = _without_watchdog(folder)
    child = dist.split_group(split_ranks=[[0, 1]])
    assert child is not None
    groups = [dist.group.WORLD, child]
    values = torch.ones(1, device="sim")
    for group in groups:  # the same order on all ranks
        dist.all_reduce(values, group=group)
    assert values.item() == 4
    works = [
        dist.all_reduce(torch.ones(1, device="sim"), group=group, async_op=True)
        for group in (groups if rank == 0 else groups[::-1])
    ]
    assert all(stays_open(work) for work in works if work is not None)
    for group in groups:
        assert group is not None
        group.abort()
    assert ends(lambda: all(work.is_completed() for work in works if work is not None))


def test_the_first_collective_connects(tmp_path: Path) -> None:
    run_ranks(_lazy, 2, tmp_path, tmp_path)


def _lazy(folder: Path) -> None:
    rank = join(folder, eager=False, seconds=1.0)
    if rank == 1:
        time.sleep(2.0)  # the group exists, but the host of rank 0 finds nobody to connect to
        return
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(1, device="sim"))
