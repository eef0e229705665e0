"""Replicas of a small training in one process, for algorithms written down a second time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm
from paceline.data.loader import load
from paceline.specs import Layout, Run, Saving, SyncSettings
from paceline.user.parameters import Parameters
from ranks import new_run, run_ranks
from train.trainings import classification, fit_and_read


class Replicas:
    """The models of all replicas, each with an optimizer and its share of every batch."""

    def __init__(self, count: int, **changes: Any) -> None:
        self.training = classification(**changes)
        self.models: list[nn.Module] = []
        self.optimizers = []
        for _ in range(count):
            torch.manual_seed(self.training.seed)
            model = self.training.model()
            self.models.append(model)
            self.optimizers.append(self.training.optimizer(Parameters(model.named_parameters())))
        self._batches = [
            list(
                load(
                    self.training.data,
                    Batches(
                        order=self.training.sample_order(),
                        batch=self.training.first_batch,
                        steps=self.training.total_steps,
                        workers=count,
                        rank=rank,
                        seed=self.training.seed,
                    ),
                    torch.device("cpu"),
                    BatchForm(),
                    processes=0,
                )
            )
            for rank in range(count)
        ]

    @property
    def count(self) -> int:
        return len(self.models)

    def gradients(self, step: int) -> list[torch.Tensor]:
        """Each replica's gradient of its share in a step (from 1), as one row; left in `grad`, too.

        A share counts as much as it has samples, as in the trainer.
        """
        rows = []
        for model, optimizer, batches in zip(
            self.models, self.optimizers, self._batches, strict=True
        ):
            optimizer.zero_grad()
            batch = batches[step - 1]
            loss = self.training.loss(model(batch.inputs), batch.target)
            torch.autograd.backward(loss * batch.samples * self.count / batch.global_samples)
            rows.append(torch.cat([each.grad.flatten() for each in model.parameters()]))  # type: ignore[union-attr]
        return rows

    def update(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def weights(self) -> list[torch.Tensor]:
        """Of each replica, as one row."""
        return [
            torch.cat([each.detach().flatten() for each in model.parameters()])
            for model in self.models
        ]

    def set_weights(self, rows: Sequence[torch.Tensor]) -> None:
        for model, row in zip(self.models, rows, strict=True):
            nn.utils.vector_to_parameters(row.clone(), model.parameters())

    def set_gradients(self, row: torch.Tensor) -> None:
        """The same gradient for all."""
        for model in self.models:
            begin = 0
            for each in model.parameters():
                each.grad = row[begin : begin + each.numel()].view_as(each).clone()
                begin += each.numel()


def trained(
    folder: Any,
    workers: int,
    sync: SyncSettings,
    layout: Layout | None = None,
    function: Callable[..., Any] = fit_and_read,
    saving: Saving | None = None,
    **changes: Any,
) -> list[Any]:
    """What real ranks come to: the recorded losses and the final weights of each."""
    run = planned(folder, workers, sync, layout, saving)
    return run_ranks(function, workers, folder, changes, run=run)


def planned(
    folder: Any,
    workers: int,
    sync: SyncSettings,
    layout: Layout | None = None,
    saving: Saving | None = None,
) -> Run:
    """The folder of a run that agrees in some way."""
    return new_run(folder, workers, layout, saving, sync=sync)
