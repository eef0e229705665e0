# mypy: disable-error-code="misc, no-any-return"
"""The training with Lightning's Trainer: `python with_trainer.py`.

Several optimizers need its manual optimization, and toggling between them.
"""

from typing import Any

import torch
from lightning import LightningModule, Trainer
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
from benchmarks.frameworks.correctness.jobs.quiet import QUIET, in_order
from examples.gan.train import Gan


class Learner(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Gan()
        self.step = 0
        self.automatic_optimization = False

    def training_step(self, batch: Any) -> None:
        noise, real = batch
        self.step += 1
        drawing, judging = self.optimizers()
        generator, discriminator = self.model.generator, self.model.discriminator
        self.toggle_optimizer(judging)
        fake = generator(noise).detach()
        loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
        judging.zero_grad()
        self.manual_backward(loss)
        judging.step()
        self.untoggle_optimizer(judging)
        if self.step % 2 == 0:
            self.toggle_optimizer(drawing)
            loss = F.softplus(-discriminator(generator(noise))).mean()
            drawing.zero_grad()
            self.manual_backward(loss)
            drawing.step()
            self.untoggle_optimizer(drawing)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        drawing = torch.optim.Adam(self.model.generator.parameters(), lr=1e-3)
        return [drawing, torch.optim.Adam(self.model.discriminator.parameters(), lr=1e-3)]


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
    data = chosen(points())
    trainer.fit(learner, DataLoader(data, LOCAL_BATCH, sampler=in_order(data)))
    record(learner.model, learner.step)


if __name__ == "__main__":
    main()
