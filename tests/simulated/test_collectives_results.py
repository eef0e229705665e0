"""The collectives of the simulated device compute what Gloo computes, and the host never waits.

Sources: torch's notes on distributed ("Synchronous and asynchronous collective operations": on
CUDA, `wait` blocks the current stream, not the host); DDP, FSDP2 and DTensor run unmodified.
"""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from ranks import run_ranks
from simulated.simccl_ranks import join

STEPS = 5


def test_every_collective(tmp_path: Path) -> None:
    run_ranks(_every_collective, 4, tmp_path, tmp_path)


def _every_collective(folder: Path) -> None:
    rank = join(folder)
    size = dist.get_world_size()
    mine = torch.arange(2.0, device="sim") + 10 * rank
    everyone = [torch.arange(2.0) + 10 * each for each in range(size)]
    total = torch.stack(everyone).sum(0)

    summed = mine.clone()
    dist.all_reduce(summed)
    assert summed.tolist() == total.tolist()
    dist.all_reduce(mean := mine.clone(), dist.ReduceOp.AVG)
    assert mean.tolist() == (total / size).tolist()
    dist.all_reduce(flags := torch.tensor([rank == 1, False], device="sim"))
    assert flags.tolist() == [True, False]
    dist.all_reduce(half := mine.bfloat16())
    assert half.tolist() == total.bfloat16().tolist()
    dist.broadcast(copied := mine.clone(), 1)
    assert copied.tolist() == everyone[1].tolist()
    dist.reduce(reduced := mine.clone(), 0)
    assert reduced.tolist() == (total if rank == 0 else everyone[rank]).tolist()

    gathered = torch.empty(2 * size, device="sim")
    dist.all_gather_single(gathered, mine)
    assert gathered.tolist() == torch.cat(everyone).tolist()
    dist.all_gather(each := [torch.empty(2, device="sim") for _ in range(size)], mine)
    assert [one.tolist() for one in each] == [one.tolist() for one in everyone]

    whole = torch.arange(2.0 * size, device="sim")
    part = torch.empty(2, device="sim")
    dist.reduce_scatter_single(part, whole)
    assert part.tolist() == (size * whole).view(size, 2)[rank].tolist()
    dist.reduce_scatter(part, list((whole + 1).view(size, 2).unbind()), dist.ReduceOp.AVG)
    assert part.tolist() == (whole + 1).view(size, 2)[rank].tolist()

    swapped = torch.empty(size, device="sim")
    dist.all_to_all_single(swapped, torch.arange(size, device="sim") + 100.0 * rank)
    assert swapped.tolist() == [rank + 100.0 * each for each in range(size)]
    at_root = [torch.empty(2, device="sim") for _ in range(size)] if rank == 2 else None
    dist.gather(mine, at_root, 2)
    assert at_root is None or [one.tolist() for one in at_root] == [e.tolist() for e in everyone]
    dist.scatter(part, [one.to("sim") for one in everyone] if rank == 3 else None, 3)
    assert part.tolist() == everyone[rank].tolist()

    # Both send first: outside a batch, and without ncclGroupStart, this would be a deadlock.
    around = torch.empty(2, device="sim")
    operations = [
        dist.P2POp(dist.isend, mine, (rank + 1) % size),
        dist.P2POp(dist.irecv, around, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert around.tolist() == everyone[(rank - 1) % size].tolist()
    dist.barrier()

    mesh = init_device_mesh("sim", (2, 2), mesh_dim_names=("rows", "columns"))
    dist.all_reduce(in_row := mine.clone(), group=mesh.get_group("columns"))
    first = rank // 2 * 2
    assert in_row.tolist() == (everyone[first] + everyone[first + 1]).tolist()
    few = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(of_two := mine.clone(), group=few)
        assert of_two.tolist() == (everyone[0] + everyone[1]).tolist()
    dist.destroy_process_group()


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))


def _losses(model: nn.Module, rank: int, device: str) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(100 + rank)
    x, y = torch.randn(16, 8).to(device), torch.randint(4, (16,)).to(device)
    losses = []
    for step in range(STEPS):
        if step == 2 and device == "sim":  # the second step of DDP rebuilds its buckets, and waits
            from paceline_simulated.device import reset

            reset()
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("sharded", [False, True])
def test_engines_follow_gloo_without_waiting(tmp_path: Path, sharded: bool) -> None:
    run_ranks(_compare_engines, 2, tmp_path, tmp_path, sharded)


def _compare_engines(folder: Path, sharded: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    from paceline_simulated.device import host_waits

    rank = join(folder)
    if sharded:
        mesh = init_device_mesh("sim", (2,))
        net = _model().to("sim")
        for module in (net[0], net[2], net):  # type: ignore[index]
            fully_shard(module, mesh=mesh)
        found = _losses(net, rank, "sim")
    else:
        found = _losses(nn.parallel.DistributedDataParallel(_model().to("sim")), rank, "sim")
    assert not host_waits()
    on_sim = torch.stack(found).cpu()
    dist.destroy_process_group()

    dist.init_process_group("gloo", init_method=f"file://{folder}/g", rank=rank, world_size=2)
    ddp = nn.parallel.DistributedDataParallel(_model())
    on_cpu = torch.stack(_losses(ddp, rank, "cpu"))
    torch.testing.assert_close(on_sim, on_cpu, rtol=0, atol=1e-6 if sharded else 0)
