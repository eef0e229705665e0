"""A byte-level GPT on text that every machine has: the source of Python's standard library."""

import sysconfig
from pathlib import Path

import torch
from model import GPT, next_byte_loss
from torch.utils.data import Dataset

import paceline

CONTEXT = 64


class Source(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows of text and the same windows one byte on."""

    def __init__(self, size_bytes: int) -> None:
        text = bytearray()
        for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
            text += path.read_bytes()
            if len(text) >= size_bytes:
                break
        self.text = torch.frombuffer(text, dtype=torch.uint8)

    def __len__(self) -> int:
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        begin = index * CONTEXT
        window = self.text[begin : begin + CONTEXT + 1].long()
        return window[:-1], window[1:]


def training() -> paceline.Training:
    return paceline.Training(
        model=lambda: GPT(layers=4, width=128, heads=4, context=CONTEXT),
        loss=next_byte_loss,
        data=Source(size_bytes=4_000_000),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        batch=32,
        steps=100,
        clip=1.0,
    )


if __name__ == "__main__":
    paceline.fit(training())
