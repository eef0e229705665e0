# mypy: disable-error-code="no-untyped-call,attr-defined,union-attr"
"""The job with torchft, one replica of one process.

Gradients are exchanged as one bucket, as DDP has them, by `Manager.allreduce`: torchft 0.2.0's own
DDP fails an assertion (`ddp.py`: `assert fut._fut`) after an exchange that failed under Gloo.
The samples are those of torchft's own sampler. A replica that is started again goes on where the
others are, which is the best that a user can do who keeps the position of each replica.
"""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torchft import DistributedSampler, Manager, Optimizer, ProcessGroupGloo
from torchft.checkpointing.pg_transport import PGTransport

from benchmarks.recovery.job import (
    PEER_TIMEOUT_SECONDS,
    STEPS,
    History,
    Paced,
    Points,
    loss_sum,
    optimizer,
)
from benchmarks.recovery.sizes import BATCH, WORKERS

SHARE = BATCH // WORKERS


def main() -> None:
    replica, address = int(os.environ["RECOVERY_REPLICA"]), os.environ["RECOVERY_ADDRESS"]
    limit = timedelta(seconds=PEER_TIMEOUT_SECONDS)
    network, data = Paced(), Points()
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupGloo(timeout=limit)
    plain = optimizer(network.parameters())

    def load(state: dict[str, Any]) -> None:
        network.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=group,
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": network.state_dict(), "optimizer": plain.state_dict()},
        replica_id=f"replica_{replica}",
        timeout=limit,
        rank=0,
        world_size=1,
        store_addr=address,
        store_port=store.port,
        hostname=address,
        checkpoint_transport=PGTransport(group, timeout=limit, device=torch.device("cpu")),
    )
    weights = [*network.parameters()]
    update = Optimizer(manager, plain)
    sampler = DistributedSampler(
        data,
        replica_rank=replica,
        num_replica_groups=WORKERS,
        group_rank=0,
        num_replicas=1,
        shuffle=False,
    )
    order, history = list(sampler), History(replica)
    taken = 0
    while manager.current_step() < STEPS:
        ids = order[taken * SHARE : (taken + 1) * SHARE]
        inputs, label = data.rows(ids)
        update.zero_grad()
        (loss_sum(network(inputs), label) / SHARE).backward()
        gradient = torch.cat([weight.grad.flatten() for weight in weights])
        manager.allreduce(gradient).wait()
        parts = gradient.split([weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight)
        # Who takes part is known when the gradients are in. Who has just been healed adds nothing.
        before, attempt = manager.current_step(), f"{manager.num_participants()} replicas"
        history.entering(before + 1, attempt, ids if manager.is_participating() else [])
        update.step()
        if manager.current_step() > before:
            history.committed(before + 1, attempt)
        taken = max(taken + 1, manager.current_step())


if __name__ == "__main__":
    main()
