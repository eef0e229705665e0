"""The same job in bare PyTorch, as its tutorials have it: DDP or FSDP2, and a loop."""

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from job import BATCH, STEPS, RandomText, network, next_byte_loss, optimizer
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def arranged(layout: str) -> Any:
    model: Any = network()
    if layout == "replicas":
        return DistributedDataParallel(model)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def main(output: str, layout: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = arranged(layout)
    update = optimizer(model.parameters())
    data = RandomText()
    sampler: DistributedSampler[object] = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
    edges: list[float] = []
    while len(edges) < STEPS + 1:
        for inputs, target in loader:
            if not edges:
                edges.append(time.perf_counter())
            loss = next_byte_loss(model(inputs), target)
            loss.backward()
            update.step()
            update.zero_grad()
            edges.append(time.perf_counter())
            if len(edges) == 2:
                first_step = time.time()
            if len(edges) > STEPS:
                break
    if os.environ["RANK"] == "0":
        seconds = [after - before for before, after in itertools.pairwise(edges)]
        Path(output).write_text(json.dumps({"first_step": first_step, "seconds": seconds}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
