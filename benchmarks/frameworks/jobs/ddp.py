# mypy: disable-error-code="no-untyped-call"
"""The job in bare PyTorch: `torchrun --nproc-per-node 2 ddp.py`."""

from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.frameworks.jobs.gpt import BATCH, WORKERS, Text, network, next_byte_loss, optimizer
from benchmarks.frameworks.jobs.meter import Meter


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network())
    update = optimizer(model.parameters())
    data = Text()
    sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=BATCH // WORKERS, sampler=sampler)
    meter = Meter()
    for inputs, target in loader:
        loss = next_byte_loss(model(inputs), target)
        loss.backward()
        update.step()
        update.zero_grad()
        meter.step(loss.item())
    meter.end()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
