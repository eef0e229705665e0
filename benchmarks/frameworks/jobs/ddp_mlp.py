# mypy: disable-error-code="no-untyped-call"
"""TensorFlow's job in bare PyTorch: `torchrun --nproc-per-node 2 ddp_mlp.py`."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from benchmarks.frameworks.jobs import mlp
from benchmarks.frameworks.jobs.meter import Meter


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for weights in mlp.first_weights():
        linear = nn.Linear(*weights.shape)
        linear.weight.data = torch.from_numpy(weights).T.contiguous()
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network())
    update = torch.optim.SGD(model.parameters(), lr=mlp.LEARNING_RATE, momentum=mlp.MOMENTUM)
    data = TensorDataset(*map(torch.from_numpy, mlp.samples()))
    sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=mlp.BATCH // mlp.WORKERS, sampler=sampler)
    meter = Meter()
    for inputs, label in loader:
        loss = F.cross_entropy(model(inputs), label)
        loss.backward()
        update.step()
        update.zero_grad()
        meter.step(loss.item())
    meter.end()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
