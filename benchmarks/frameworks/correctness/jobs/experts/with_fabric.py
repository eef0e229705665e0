"""The training with Fabric: `python with_fabric.py`, which starts the other workers itself."""

from typing import Any

import torch
from lightning.fabric import Fabric
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.experts.data import digits
from benchmarks.frameworks.correctness.jobs.given import (
    EPOCHS,
    LOCAL_BATCH,
    WORKERS,
    chosen,
    record,
)
from examples.experts.train import EXPERTS, Mixture


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=WORKERS, strategy="ddp_find_unused_parameters_true")
    fabric.launch()
    torch.manual_seed(0)
    plain = Mixture()
    model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), lr=2e-3))
    loader: Any = fabric.setup_dataloaders(DataLoader(chosen(digits()), LOCAL_BATCH))
    for _ in range(EPOCHS):
        for pixels, labels in loader:
            logits, routes = model(pixels)
            every = fabric.all_gather(routes, sync_grads=True).flatten(0, 1)
            share = F.one_hot(every.argmax(-1), EXPERTS).float().mean(0)
            balance = EXPERTS * (share * every.mean(0)).sum()
            loss = F.cross_entropy(logits, labels) + 0.01 * balance
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
    record(plain, EPOCHS * len(loader))


if __name__ == "__main__":
    main()
