"""BERT-Large, as it is pre-trained: masked tokens, LAMB for large batches, warm-up and decay.

The text is the help that comes with Python, a token for each letter. In small, in minutes:
    paceline run examples/recipes/bert.py -n 2 -- --small
"""

import argparse
import string
from collections.abc import Callable
from functools import partial
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import Dataset

import paceline

SYMBOLS = string.ascii_lowercase + string.digits + " .,:;()[]\"'_-*=|"
OTHER, MASK = len(SYMBOLS), len(SYMBOLS) + 1
TOKENS = len(SYMBOLS) + 2
MASKED = 0.15
HELD_OUT = 0.05
STRIDE = 8
"""Pieces of the training's text overlap: each begins this many tokens after the last."""
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


def split_text() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the training's text and the held-out rest: a token for each letter, no capitals."""
    places = {symbol: place for place, symbol in enumerate(SYMBOLS)}
    paragraphs = [" ".join(each.split()) for each in "\n\n".join(topics.values()).split("\n\n")]
    text = " ".join(dict.fromkeys(paragraphs)).lower()  # many are in several topics
    tokens = torch.tensor([places.get(each, OTHER) for each in text])
    cut = round((1 - HELD_OUT) * len(tokens))
    return tokens[:cut], tokens[cut:]


class MaskedText(Dataset[Any]):
    """Pieces of text; of each, as many tokens have to be told, and the others have no target."""

    def __init__(self, length: int, *, held_out: bool = False) -> None:
        training, rest = split_text()
        self.held_out = held_out
        self.pieces = (
            rest.unfold(0, length, length) if held_out else training.unfold(0, length, STRIDE)
        )

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Hide the chosen tokens; in training, replace a tenth of them and keep a tenth.

        Held-out pieces hide all of them, and always the same, so that a model that ignores the
        other tokens can only know how frequent each token is.
        """
        tokens = self.pieces[index].clone()
        generator = torch.Generator().manual_seed(index) if self.held_out else None
        chosen = torch.randperm(len(tokens), generator=generator)[: round(MASKED * len(tokens))]
        target = torch.full_like(tokens, NOT_MASKED)
        target[chosen] = tokens[chosen]
        hidden = len(chosen) if self.held_out else round(0.8 * len(chosen))
        tokens[chosen[:hidden]] = MASK
        changed = chosen[hidden : (hidden + len(chosen)) // 2]  # the rest stays as it is
        tokens[changed] = torch.randint(OTHER, changed.shape)
        return tokens, target


def masked_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A mean over samples, since all have as many targets."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=NOT_MASKED)


def training() -> paceline.Training:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="few layers, short pieces")
    parser.add_argument("--batch", type=int, default=32_768)
    parser.add_argument("--steps", type=int, default=1563)
    given = parser.parse_args()
    length, rate = 512, RATE_AT_32768 * (given.batch / 32_768) ** 0.5
    model: Callable[[], nn.Module] = bert_large
    warm_up_part = 5
    if given.small:
        length, rate, warm_up_part = 32, 0.02, 10
        given.batch, given.steps = 96, 1000
        model = partial(Bert, vocab=TOKENS, length=length, layers=2, width=96, heads=4)
    steps, warm_up = given.steps, max(1, given.steps // warm_up_part)

    def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
        return LambdaLR(
            optimizer, lambda step: min((step + 1) / warm_up, max(0.0, (steps - step) / steps))
        )

    return paceline.Training(
        model=model,
        loss=masked_loss,
        data=MaskedText(length),
        optimizer=lambda parameters: paceline.LAMB(parameters, lr=rate, weight_decay=0.01),
        schedule=schedule,
        batch=given.batch,
        steps=steps,
        clip=1.0,
        validation=paceline.Validation(
            MaskedText(length, held_out=True), every_steps=max(1, steps // 5)
        ),
    )


if __name__ == "__main__":
    paceline.fit(training())
