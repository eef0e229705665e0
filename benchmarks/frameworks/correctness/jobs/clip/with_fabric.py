"""The training with Fabric: `python with_fabric.py`, which starts the other workers itself."""

from typing import Any

import torch
from lightning.fabric import Fabric
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import (
    EPOCHS,
    LOCAL_BATCH,
    WORKERS,
    chosen,
    record,
)
from examples.clip.train import Clip, pairs


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=WORKERS, strategy="ddp")
    fabric.launch()
    torch.manual_seed(0)
    plain = Clip()
    model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), lr=2e-3))
    loader: Any = fabric.setup_dataloaders(DataLoader(chosen(pairs()), LOCAL_BATCH))
    for _ in range(EPOCHS):
        for pixels, names, labels in loader:
            image, name, scale = model(pixels, names)
            image, name = fabric.all_gather((image, name), sync_grads=True)
            logits = scale * image.flatten(0, 1) @ name.flatten(0, 1).T
            every = fabric.all_gather(labels).flatten()
            same = (every[:, None] == every).float()
            target = same / same.sum(1, keepdim=True)
            loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
    record(plain, EPOCHS * len(loader))


if __name__ == "__main__":
    main()
