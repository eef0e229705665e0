"""A small GPT to try every layout on: `paceline run examples/layouts/train.py --plan PLAN`.

The plans beside this file have one family each, and a mixture.
"""

import sys
from pathlib import Path

import torch

import paceline

sys.path.insert(0, str(Path(__file__).parent.parent / "gpt"))
from model import GPT, next_byte_loss

CONTEXT = 32


class Alphabet(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The alphabet over and over, entered at any letter."""

    def __len__(self) -> int:
        return 260

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        letters = torch.arange(index, index + CONTEXT + 1) % 26 + ord("a")
        return letters[:-1], letters[1:]


def training() -> paceline.Training:
    return paceline.Training(
        model=lambda: GPT(layers=4, width=64, heads=4, context=CONTEXT),
        loss=next_byte_loss,
        data=Alphabet(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        batch=16,
        steps=20,
        clip=1.0,
    )


if __name__ == "__main__":
    paceline.fit(training())
