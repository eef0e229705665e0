"""The training with Fabric: `python with_fabric.py`, which starts the other workers itself."""

from typing import Any

import torch
from lightning.fabric import Fabric
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.gan.data import points
from benchmarks.frameworks.correctness.jobs.given import (
    EPOCHS,
    LOCAL_BATCH,
    WORKERS,
    chosen,
    record,
)
from examples.gan.train import Gan


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=WORKERS, strategy="ddp")
    fabric.launch()
    torch.manual_seed(0)
    plain = Gan()
    generator, drawing = fabric.setup(
        plain.generator, torch.optim.Adam(plain.generator.parameters(), lr=1e-3)
    )
    discriminator, judging = fabric.setup(
        plain.discriminator, torch.optim.Adam(plain.discriminator.parameters(), lr=1e-3)
    )
    loader: Any = fabric.setup_dataloaders(DataLoader(chosen(points()), LOCAL_BATCH))
    step = 0
    for _ in range(EPOCHS):
        for noise, real in loader:
            step += 1
            fake = generator(noise).detach()
            loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
            judging.zero_grad()
            fabric.backward(loss)
            judging.step()
            if step % 2 == 0:
                loss = F.softplus(-discriminator(generator(noise))).mean()
                drawing.zero_grad()
                fabric.backward(loss)
                drawing.step()
    record(plain, step)


if __name__ == "__main__":
    main()
