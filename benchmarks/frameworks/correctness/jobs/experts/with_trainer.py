# mypy: disable-error-code="misc, no-any-return"
"""The training with Lightning's Trainer: `python with_trainer.py`."""

from typing import Any

import torch
from lightning import LightningModule, Trainer
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
from benchmarks.frameworks.correctness.jobs.quiet import QUIET, in_order
from examples.experts.train import EXPERTS, Mixture


class Learner(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Mixture()

    def training_step(self, batch: Any) -> torch.Tensor:
        pixels, labels = batch
        logits, routes = self.model(pixels)
        every = self.all_gather(routes, sync_grads=True).flatten(0, 1)
        share = F.one_hot(every.argmax(-1), EXPERTS).float().mean(0)
        balance = EXPERTS * (share * every.mean(0)).sum()
        return F.cross_entropy(logits, labels) + 0.01 * balance

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main() -> None:
    torch.manual_seed(0)
    learner = Learner()
    trainer = Trainer(
        accelerator="cpu",
        devices=WORKERS,
        strategy="ddp_find_unused_parameters_true",
        max_epochs=EPOCHS,
        **QUIET,
    )
    data = chosen(digits())
    trainer.fit(learner, DataLoader(data, LOCAL_BATCH, sampler=in_order(data)))
    record(learner.model, trainer.global_step)


if __name__ == "__main__":
    main()
