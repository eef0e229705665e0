"""Optimizers with a known rule for larger batches, by how their rate grows."""

import torch

from paceline.learning.rules import Family

FAMILIES: dict[type[torch.optim.Optimizer], Family] = {
    torch.optim.SGD: "linear",
    torch.optim.Adam: "square root",
    torch.optim.AdamW: "square root",
    torch.optim.NAdam: "square root",
    torch.optim.RAdam: "square root",
    torch.optim.RMSprop: "square root",
}


def family_of(optimizer: torch.optim.Optimizer) -> Family | None:
    """Return how an optimizer's rate grows with the batch; None where no rule is known."""
    return next((each for kind, each in FAMILIES.items() if isinstance(optimizer, kind)), None)
