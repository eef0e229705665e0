"""A byte-level GPT on text that every machine has: the source of Python's standard library."""

import torch
from model import GPT, next_byte_loss
from text import CONTEXT, Source

import paceline


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
