"""The job with Lightning Fabric: `python with_fabric.py`, which starts the other worker itself."""

from typing import Any

from lightning.fabric import Fabric
from torch.utils.data import DataLoader

from benchmarks.frameworks.jobs.gpt import BATCH, WORKERS, Text, network, next_byte_loss, optimizer
from benchmarks.frameworks.jobs.meter import Meter


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=WORKERS, strategy="ddp")
    fabric.launch()
    plain = network()
    model, update = fabric.setup(plain, optimizer(plain.parameters()))
    loader: Any = fabric.setup_dataloaders(DataLoader(Text(), batch_size=BATCH // WORKERS))
    meter = Meter()
    for inputs, target in loader:
        loss = next_byte_loss(model(inputs), target)
        fabric.backward(loss)
        update.step()
        update.zero_grad()
        meter.step(loss.item())
    meter.end()


if __name__ == "__main__":
    main()
