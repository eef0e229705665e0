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
from examples.translation.train import PAD, Numbers, Translator, padded


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=WORKERS, strategy="ddp")
    fabric.launch()
    torch.manual_seed(0)
    plain = Translator()
    model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), lr=2e-3))
    loader: Any = fabric.setup_dataloaders(
        DataLoader(chosen(Numbers()), LOCAL_BATCH, collate_fn=padded)
    )
    for _ in range(EPOCHS):
        for inputs, target in loader:
            logits = model(*inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
    record(plain, EPOCHS * len(loader))


if __name__ == "__main__":
    main()
