# mypy: disable-error-code="misc, no-any-return"
"""The training with Lightning's Trainer: `python with_trainer.py`."""

from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch.nn import functional as F
from torch.optim.swa_utils import get_ema_avg_fn
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import EPOCHS, LOCAL_BATCH, WORKERS, record
from benchmarks.frameworks.correctness.jobs.quiet import QUIET, in_order
from benchmarks.frameworks.correctness.jobs.resnet.data import held_out, shapes
from examples.resnet.train import resnet


class Learner(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = resnet()

    def training_step(self, batch: Any) -> torch.Tensor:
        image, target = batch
        return F.cross_entropy(self.model(image), target)

    def validation_step(self, batch: Any) -> None:
        image, target = batch
        right = (self.model(image).argmax(1) == target).float().mean()
        self.log("accuracy", right, batch_size=len(target), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    torch.manual_seed(0)
    learner = Learner()
    trainer = Trainer(
        accelerator="cpu",
        devices=WORKERS,
        strategy="ddp",
        max_epochs=EPOCHS,
        callbacks=[WeightAveraging(use_buffers=False, avg_fn=get_ema_avg_fn(0.9))],  # type: ignore[no-untyped-call]
        **QUIET,
    )
    data = shapes()
    loader = DataLoader(data, LOCAL_BATCH, sampler=in_order(data))
    trainer.fit(learner, loader, DataLoader(held_out(), LOCAL_BATCH))
    recorded = float(trainer.callback_metrics["accuracy"])
    record(learner.model, trainer.global_step, accuracy=recorded)


if __name__ == "__main__":
    main()
