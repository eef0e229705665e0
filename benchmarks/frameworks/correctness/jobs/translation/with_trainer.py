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
from examples.translation.train import PAD, Numbers, Translator, padded


class Learner(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Translator()

    def training_step(self, batch: Any) -> torch.Tensor:
        inputs, target = batch
        logits = self.model(*inputs)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main() -> None:
    torch.manual_seed(0)
    learner = Learner()
    trainer = Trainer(
        accelerator="cpu",
        devices=WORKERS,
        strategy="ddp",
        max_epochs=EPOCHS,
        gradient_clip_val=1.0,
        **QUIET,
    )
    data = chosen(Numbers())
    loader = DataLoader(data, LOCAL_BATCH, sampler=in_order(data), collate_fn=padded)
    trainer.fit(learner, loader)
    record(learner.model, trainer.global_step)


if __name__ == "__main__":
    main()
