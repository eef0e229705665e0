"""Groups of some workers for a while."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import torch
import torch.distributed as dist

from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Run
from paceline.train.elastic.joined_groups import joined, joined_elastic
from ranks import run_ranks


def _sums() -> list[float]:
    """Of the ranks in pairs, in fours, and of all; the last worker is left over twice."""
    folder = run_folder()
    assert folder is not None
    here, found = placement(), []
    with joined(Run.open(folder), here, torch.device("cpu"), None) as groups:
        for size in (2, 4, 5):
            first = here.rank - here.rank % size
            members = list(range(first, first + size)) if first + size <= 5 else [here.rank]
            with groups.among(members) as group:
                own = torch.tensor([float(here.rank)])
                dist.all_reduce(own, group=group)
                found.append(float(own))
        for about in ("names", "other names"):
            assert groups.collect(about, f"{about} {here.rank}") == (
                [f"{about} {rank}" for rank in range(5)] if here.rank == 0 else []
            )
    return found


@pytest.mark.timeout(60)
def test_groups_come_and_go_and_all_are_heard(tmp_path: Path) -> None:
    found = run_ranks(_sums, 5, tmp_path)
    assert found == [[1, 6, 10], [1, 6, 10], [5, 6, 10], [5, 6, 10], [4, 4, 10]]


def _meets_nobody_once() -> tuple[int, float]:
    """Worker 0 fails to make its group of the next generation, when worker 1 has made its own."""
    folder = run_folder()
    assert folder is not None
    here, engine = placement(), cast("Any", dist)
    made = dist.init_process_group

    def in_vain(backend: str, *, store: Any, rank: int, world_size: int, **_: Any) -> None:
        engine.init_process_group = made
        made(backend, store=store, rank=rank, world_size=world_size)
        dist.destroy_process_group()
        store = engine.PrefixStore("where nobody comes", store)
        soon = timedelta(seconds=0.3)
        made(backend, store=store, rank=rank, world_size=world_size, timeout=soon)

    cpu, everybody = torch.device("cpu"), lambda members: members
    with joined_elastic(Run.open(folder), here, cpu, None, everybody) as (groups, agent):
        assert agent is not None
        if here.rank == 0:
            engine.init_process_group = in_vain
        begin = agent.regroup(groups, {}, "to see")
        ones = torch.ones(1)
        if begin.roster.generation == 1:
            with pytest.raises(RuntimeError):
                dist.all_reduce(ones)
            begin = agent.regroup(groups, {}, "worker 0 is not there")
        dist.all_reduce(ones)
        return begin.roster.generation, float(ones)


@pytest.mark.timeout(60)
def test_a_group_that_could_not_be_made_does_not_keep_workers_apart(tmp_path: Path) -> None:
    assert run_ranks(_meets_nobody_once, 2, tmp_path) == [(2, 2.0), (2, 2.0)]


def _listening_ports() -> set[int]:
    return {
        each.laddr.port
        for each in psutil.Process().net_connections("tcp4")
        if each.status == psutil.CONN_LISTEN
    }


def _regrouped() -> set[int]:
    """Return the first generation's ports that still listen in the third one."""
    folder = run_folder()
    assert folder is not None
    before, cpu = _listening_ports(), torch.device("cpu")
    with joined_elastic(Run.open(folder), placement(), cpu, None, lambda all_: all_) as joining:
        groups, agent = joining
        assert agent is not None
        first = _listening_ports() - before
        for _ in range(2):
            agent.regroup(groups, {}, "to see")
            groups.sum(torch.ones(1))
        first -= {agent.member.port, agent.member.memory_port}
        end = time.monotonic() + 10
        while (left := first & _listening_ports()) and time.monotonic() < end:
            time.sleep(0.05)  # threads of a group may hold it for a moment
        return left


@pytest.mark.timeout(60)
def test_stores_and_groups_of_old_generations_stop_listening(tmp_path: Path) -> None:
    assert run_ranks(_regrouped, 2, tmp_path) == [set(), set()]


def _traffic() -> tuple[str, set[str]]:
    """Return the interface that this worker reports, and the addresses that it listens on."""
    folder = run_folder()
    assert folder is not None
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    with joined(Run.open(folder), placement(), torch.device("cpu"), None) as groups:
        groups.sum(torch.ones(1))
        assert groups.interface is not None
        connections = psutil.Process().net_connections("tcp4")
        return groups.interface.name, {each.laddr.ip for each in connections}


@pytest.mark.timeout(60)
def test_the_environment_does_not_move_a_local_run_off_loopback(tmp_path: Path) -> None:
    assert run_ranks(_traffic, 2, tmp_path) == [("lo", {"127.0.0.1"})] * 2
