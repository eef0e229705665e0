"""The job of `overhead.py`: the byte-level GPT of the examples on text that needs no reading."""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gpt"))
from model import GPT, next_byte_loss

__all__ = ["BATCH", "STEPS", "RandomText", "network", "next_byte_loss", "optimizer"]

CONTEXT, SAMPLES = 64, 4096
BATCH, STEPS = 32, 120


class RandomText(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Bytes from a seed, so that only the engine is measured."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.text = torch.randint(256, (SAMPLES, CONTEXT + 1), generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.text[index, :-1], self.text[index, 1:]


def network() -> nn.Module:
    model: nn.Module = GPT(layers=4, width=128, heads=4, context=CONTEXT)
    return model


def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)
