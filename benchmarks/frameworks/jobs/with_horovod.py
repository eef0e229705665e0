# mypy: disable-error-code="no-untyped-call"
"""The job with Horovod: `horovodrun -np 2 --gloo python with_horovod.py`."""

from typing import Any

import horovod.torch as hvd
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.frameworks.jobs.gpt import BATCH, WORKERS, Text, network, next_byte_loss, optimizer
from benchmarks.frameworks.jobs.meter import Meter


def main() -> None:
    hvd.init()
    model = network()
    update = hvd.DistributedOptimizer(
        optimizer(model.parameters()), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    data = Text()
    sampler: DistributedSampler[Any] = DistributedSampler(data, hvd.size(), hvd.rank(), False)
    loader = DataLoader(data, batch_size=BATCH // WORKERS, sampler=sampler)
    meter = Meter()
    for inputs, target in loader:
        loss = next_byte_loss(model(inputs), target)
        loss.backward()
        update.step()
        update.zero_grad()
        meter.step(loss.item())
    meter.end()


if __name__ == "__main__":
    main()
