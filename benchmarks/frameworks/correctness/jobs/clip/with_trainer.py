# mypy: disable-error-code="misc, no-any-return"
"""The training with Lightning's Trainer: `python with_trainer.py`."""

from typing import Any

import torch
from lightning import LightningModule, Trainer
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import (
    EPOCHS,
    LOCAL_BATCH,
    WORKERS,
    chosen,
    record,
)
from benchmarks.frameworks.correctness.jobs.quiet import QUIET, in_order
from examples.clip.train import Clip, pairs


class Learner(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Clip()

    def training_step(self, batch: Any) -> torch.Tensor:
        pixels, names, labels = batch
        image, name, scale = self.model(pixels, names)
        image, name = self.all_gather((image, name), sync_grads=True)
        logits = scale * image.flatten(0, 1) @ name.flatten(0, 1).T
        every = self.all_gather(labels).flatten()
        same = (every[:, None] == every).float()
        target = same / same.sum(1, keepdim=True)
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main() -> None:
    torch.manual_seed(0)
    learner = Learner()
    trainer = Trainer(
        accelerator="cpu", devices=WORKERS, strategy="ddp", max_epochs=EPOCHS, **QUIET
    )
    data = chosen(pairs())
    trainer.fit(learner, DataLoader(data, LOCAL_BATCH, sampler=in_order(data)))
    record(learner.model, trainer.global_step)


if __name__ == "__main__":
    main()
