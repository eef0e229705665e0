"""What every framework is given: the model, the samples in their order, the loss, the optimizer."""

import os
from collections.abc import Iterable

import torch
from torch import nn

from examples.gpt.model import GPT, next_byte_loss

__all__ = ["BATCH", "WORKERS", "Text", "network", "next_byte_loss", "optimizer"]

WORKERS, BATCH, CONTEXT = 2, 8, 64
STEPS = int(os.environ.get("FRAMEWORKS_STEPS", "60"))


class Text(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Bytes that count up or down by a stride of their own: something to learn within few steps.

    As many samples as the steps take, shuffled beforehand: every framework shuffles in its own way,
    but walks through samples in order alike, so that each step has the same samples in all.
    """

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        samples = STEPS * BATCH
        first = torch.randint(256, (samples, 1), generator=random)
        stride = torch.randint(-3, 4, (samples, 1), generator=random)
        self.text = (first + stride * torch.arange(CONTEXT + 1)) % 256

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.text[index, :-1], self.text[index, 1:]


def network() -> nn.Module:
    """The model, with the same first weights in every process and framework."""
    torch.manual_seed(0)
    model: nn.Module = GPT(layers=4, width=256, heads=4, context=CONTEXT)
    return model


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)
