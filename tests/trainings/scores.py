"""Metrics of torchmetrics, one for each way to merge states. Importing them takes seconds."""

from typing import Any

import torch
from torchmetrics import Metric, PearsonCorrCoef
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score

from train.trainings import CLASSES


class Confidence(PearsonCorrCoef):
    """The correlation of the chosen logit with the label: states that only compute() combines."""

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        """Add the largest logit of each sample, and its label."""
        super().update(preds.max(1).values, target.float())


class Scattered(Metric):
    """Keeps a list that torchmetrics does not concatenate."""

    seen: list[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("seen", [], dist_reduce_fx=None)

    def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
        """Add each label as a tensor of its own."""
        self.seen += list(target)

    def compute(self) -> torch.Tensor:
        """Return the number of samples."""
        return torch.tensor(len(self.seen))


def metrics() -> dict[str, Any]:
    """Return new metrics by name."""
    return {
        "f1": MulticlassF1Score(CLASSES, average="macro"),  # sums
        "auroc": MulticlassAUROC(CLASSES),  # concatenated
        "confidence": Confidence(),  # stacked
        "difference": 2 * MulticlassF1Score(CLASSES) - 1,  # composed
    }
