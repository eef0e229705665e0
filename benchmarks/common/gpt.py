"""The byte-level GPT of the examples on random text: what most benchmarks train.

It does not import Paceline: bare scripts train it too, and their start-up is timed.
"""

import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from examples.gpt.model import GPT, next_byte_loss

__all__ = [
    "BATCH",
    "CONTEXT",
    "MICRO_BATCH",
    "STEPS",
    "WIDTH",
    "RandomText",
    "network",
    "next_byte_loss",
    "optimizer",
    "timed",
]

CONTEXT, SAMPLES, WIDTH = 64, 4096, 128
BATCH, MICRO_BATCH, STEPS = 32, 8, 120


class RandomText(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Bytes from a seed, so that only the engine is measured."""

    def __init__(self, samples: int = SAMPLES) -> None:
        generator = torch.Generator().manual_seed(0)
        self.text = torch.randint(256, (samples, CONTEXT + 1), generator=generator)

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.text[index, :-1], self.text[index, 1:]


def network() -> nn.Module:
    """Return the model, 0.87 million parameters."""
    model: nn.Module = GPT(layers=4, width=WIDTH, heads=4, context=CONTEXT)
    return model


def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW at the usual rate."""
    return torch.optim.AdamW(parameters, lr=1e-3)


def timed(loader: Iterable[Any], output: str) -> Iterator[Any]:
    """Yield as many batches as there are steps; worker 0 writes the seconds of each step."""
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    edges: list[float] = []
    first_step = 0.0
    for batch in itertools.islice(epochs, STEPS):
        edges = edges or [time.perf_counter()]
        yield batch
        edges.append(time.perf_counter())
        first_step = first_step or time.time()
    if os.environ["RANK"] == "0":
        seconds = [after - before for before, after in itertools.pairwise(edges)]
        Path(output).write_text(json.dumps({"first_step": first_step, "seconds": seconds}))
