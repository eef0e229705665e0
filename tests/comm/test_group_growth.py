"""How what a worker does to create its process groups grows with the number of workers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from paceline.cluster.open_files import needed_files
from paceline.comm import groups as groups_module
from paceline.comm.groups import Groups
from paceline.comm.signed_store import SignedStore
from paceline.comm.torch_internals import created_group, fake_store
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Layout, Placement, Run
from paceline.train.elastic.joined_groups import joined
from ranks import run_ranks


@contextmanager
def fake_groups(rank: int, workers: int) -> Iterator[Groups]:
    """torch's stand-in for a backend: as many workers as one likes, of which this one is real."""
    dist.init_process_group("fake", store=fake_store(), rank=rank, world_size=workers)
    try:
        yield Groups(Placement(rank=rank, workers=workers), torch.device("cpu"), None)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_a_worker_creates_as_many_groups_among_10_000_as_among_32(
    monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    """Before, each of 10,000 workers with shards on 8 called torch 1,258 times."""
    found = {}
    for workers in (32, 1024, 10_000 // 16 * 16):
        created: list[list[int]] = []

        def counted(
            name: str, ranks: list[int], backend: str | None, into: list[list[int]] = created
        ) -> dist.ProcessGroup:
            into.append(ranks)
            return created_group(name, ranks, backend)

        monkeypatch.setattr(groups_module, "created_group", counted)
        rank = round(part * (workers - 1))
        layout = Layout(replicas=workers // 16, shards=2, tensor=2, pipeline=4)
        with fake_groups(rank, workers) as groups:
            mesh = groups.mesh(layout)
            assert mesh.get_group("shards").size() == 2
            assert mesh.get_local_rank("tensor") == rank % 2
            groups.join_replicas(layout)
            groups.join_parts(layout)
            groups.dividing_the_batch(layout)
            groups.among_stages(layout, [0, 2])
        assert all(rank in ranks for ranks in created)
        found[workers] = len(created)
    assert set(found.values()) == {9}


def _store_calls(size: int) -> tuple[dict[str, int], dict[str, int], int]:
    """Calls of the store, to join all and to create groups of `size`; then how many sockets."""
    calls: Counter[str] = Counter()
    for name in ("set", "get", "add", "wait", "check"):
        before = getattr(SignedStore, name)

        def counted(
            *arguments: object, before: object = before, name: str = name, **more: object
        ) -> object:
            calls[name] += 1
            return before(*arguments, **more)  # type: ignore[operator]

        setattr(SignedStore, name, counted)
    folder, here = run_folder(), placement()
    assert folder is not None
    with joined(Run.open(folder), here, torch.device("cpu"), None) as groups:
        for_all = dict(calls)
        calls.clear()
        groups.join_parts(Layout(replicas=here.workers // size, shards=size // 2, tensor=2))
        for_parts = dict(calls)
        groups.join_replicas(Layout(replicas=here.workers))
        dist.barrier()
        sockets = len(psutil.Process().net_connections("tcp4"))
        dist.barrier()
    return for_all, for_parts, sockets


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_what_real_workers_ask_the_store(tmp_path: Path) -> None:
    """For groups of four: the same number of calls in any run. Sockets stay below what
    `needed_files` counts with."""
    found = {}
    for workers in (8, 16):
        (tmp_path / str(workers)).mkdir()
        found[workers] = run_ranks(_store_calls, workers, tmp_path / str(workers), 4)
    for_parts = {
        workers: {
            name: max(parts.get(name, 0) for _, parts, _ in each) for name in ("set", "get", "add")
        }
        for workers, each in found.items()
    }
    assert for_parts[8] == for_parts[16]
    assert for_parts[8]["get"] == 4  # Gloo reads the addresses of the group's workers
    for workers, each in found.items():
        assert max(sockets for _, _, sockets in each) < needed_files(workers, by_gloo=True)
