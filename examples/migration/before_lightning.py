# mypy: disable-error-code="misc, no-any-return"
"""`python before_lightning.py`: it starts the other worker."""

from typing import Any

import task
import torch
from lightning import LightningModule, Trainer, seed_everything
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

WORKERS = 2


class Learner(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = task.network()

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        inputs, target = batch
        loss = F.cross_entropy(self.model(inputs), target)
        mean: Any = self.all_gather(loss.detach())
        step = self.global_step + 1
        if step % 11 == 0:
            self.print(f"step {step}: {mean.mean().item():.7f}")
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        inputs, target = batch
        right = task.accuracy(self.model(inputs), target)
        self.log("accuracy", right, sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        metrics = self.trainer.callback_metrics
        self.print(f"accuracy: {metrics['accuracy'].item():.7f}")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=task.RATE)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": task.schedule(optimizer),
                "interval": "step",
            },
        }

    def train_dataloader(self) -> DataLoader[Any]:
        """Without this sampler, Lightning puts in one that shuffles."""
        sampler: DistributedSampler[Any] = DistributedSampler(
            task.digits(), shuffle=task.SHUFFLE
        )
        return DataLoader(
            task.digits(), task.BATCH // WORKERS, sampler=sampler
        )

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(task.digits(held_out=True), task.BATCH // WORKERS)


def main() -> None:
    seed_everything(0)
    trainer = Trainer(
        accelerator="cpu",
        devices=WORKERS,
        strategy="ddp",
        max_epochs=task.EPOCHS,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
    )
    trainer.fit(Learner())


if __name__ == "__main__":
    main()
