# mypy: disable-error-code="no-untyped-call"
"""The job with Ray Train: `python with_ray.py`, which starts Ray on this machine."""

import ray
import ray.train.torch
from torch.utils.data import DataLoader

from benchmarks.frameworks.jobs.gpt import BATCH, WORKERS, Text, network, next_byte_loss, optimizer
from benchmarks.frameworks.jobs.meter import Meter


def train() -> None:
    model = ray.train.torch.prepare_model(network())
    update = optimizer(model.parameters())
    loader = ray.train.torch.prepare_data_loader(DataLoader(Text(), batch_size=BATCH // WORKERS))
    meter = Meter()
    for inputs, target in loader:
        loss = next_byte_loss(model(inputs), target)
        loss.backward()
        update.step()
        update.zero_grad()
        meter.step(loss.item())
    meter.end()


def main() -> None:
    ray.init(address="local", _node_ip_address="127.0.0.1")
    scaling = ray.train.ScalingConfig(num_workers=WORKERS)
    ray.train.torch.TorchTrainer(train, scaling_config=scaling).fit()


if __name__ == "__main__":
    main()
