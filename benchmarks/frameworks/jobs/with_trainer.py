# mypy: disable-error-code="misc, no-any-return"
"""The job with Lightning's Trainer: `python with_trainer.py`, which starts the other worker itself.

What the Trainer does by itself and the others do not (checkpoints, a log, a progress bar) is off.
The sampler is given: for a loader that walks through its samples in order it would put in one that
shuffles.
"""

from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.frameworks.jobs.gpt import BATCH, WORKERS, Text, network, next_byte_loss, optimizer
from benchmarks.frameworks.jobs.meter import Meter


class Learner(LightningModule):
    """The model and how it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.model = network()

    def training_step(self, batch: Any) -> torch.Tensor:
        """The loss of a batch."""
        inputs, target = batch
        return next_byte_loss(self.model(inputs), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """What updates the model."""
        return optimizer(self.parameters())

    def train_dataloader(self) -> DataLoader[Any]:
        """This worker's batches."""
        data = Text()
        sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=False)
        return DataLoader(data, batch_size=BATCH // WORKERS, sampler=sampler)


class Metered(Callback):
    """The stopwatch."""

    def __init__(self) -> None:
        self.meter = Meter()

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """Note the step."""
        del trainer, module, batch, index
        self.meter.step(outputs["loss"].item())

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Write the line."""
        del trainer, module
        self.meter.end()


def main() -> None:
    trainer = Trainer(
        accelerator="cpu",
        devices=WORKERS,
        strategy="ddp",
        max_epochs=1,
        callbacks=[Metered()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Learner())


if __name__ == "__main__":
    main()
