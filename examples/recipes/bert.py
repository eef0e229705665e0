"""BERT-Large, as it is pre-trained: masked words, LAMB for large batches, warm-up and decay.

The text is the source of Python's standard library, in bytes. In small, in about a minute:
    paceline run examples/recipes/bert.py -n 2 -- --small
"""

import argparse
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import Dataset

import paceline

MASK, BYTES = 256, 256
MASKED = 0.15
NOT_MASKED = -100
RATE_AT_32768 = 0.005
"""You et al. 2019, LAMB: the square-root rule for other batches."""


class Bert(nn.Module):
    """The encoder and its head for masked tokens, whose weight is the embedding's."""

    def __init__(self, vocab: int, length: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(length, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    *(width, heads, 4 * width, 0.0, F.gelu), batch_first=True
                )
                for _ in range(layers)
            )
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        inside = self.blocks(self.norm(self.tokens(words) + self.positions(places)))
        return F.linear(self.head(inside), self.tokens.weight, self.bias)


def bert_large() -> nn.Module:
    return Bert(vocab=30_522, length=512, layers=24, width=1024, heads=16)


class MaskedText(Dataset[Any]):
    """Pieces of text; of each, as many bytes are hidden, and the others have no target."""

    def __init__(self, length: int, size_bytes: int) -> None:
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        text = b"".join(each.read_bytes() for each in files)[:size_bytes]
        self.pieces = torch.frombuffer(bytearray(text), dtype=torch.uint8).unfold(0, length, length)

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        words = self.pieces[index].long()
        chosen = torch.randperm(len(words))[: round(MASKED * len(words))]
        target = torch.full_like(words, NOT_MASKED)
        target[chosen] = words[chosen]
        masked, other = torch.tensor_split(chosen, [round(0.8 * len(chosen))])
        words[masked] = MASK
        changed = other[: len(other) // 2]  # the rest stays as it is
        words[changed] = torch.randint(BYTES, changed.shape)
        return words, target


def masked_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A mean over samples, since all have as many targets."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=NOT_MASKED)


def training() -> paceline.Training:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="few layers, short pieces")
    parser.add_argument("--batch", type=int, default=32_768)
    parser.add_argument("--steps", type=int, default=1563)
    given = parser.parse_args()
    length, size_bytes, rate = 512, 1_000_000_000, RATE_AT_32768 * (given.batch / 32_768) ** 0.5
    model: Callable[[], nn.Module] = bert_large
    if given.small:
        length, size_bytes, rate = 64, 1_000_000, 0.01
        given.batch, given.steps = 64, 150
        model = partial(Bert, vocab=BYTES + 1, length=64, layers=2, width=64, heads=4)
    steps, warm_up = given.steps, max(1, given.steps // 5)

    def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
        return LambdaLR(
            optimizer, lambda step: min((step + 1) / warm_up, max(0.0, (steps - step) / steps))
        )

    return paceline.Training(
        model=model,
        loss=masked_loss,
        data=MaskedText(length, size_bytes),
        optimizer=lambda parameters: paceline.LAMB(parameters, lr=rate, weight_decay=0.01),
        schedule=schedule,
        batch=given.batch,
        steps=steps,
        clip=1.0,
    )


if __name__ == "__main__":
    paceline.fit(training())
