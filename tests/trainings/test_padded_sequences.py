"""Sequence to sequence with padding: `collate=` pads each local batch to its own longest sample.

Padding must not change the result: the model masks it, and the loss is a mean over tokens.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

import paceline
from paceline.specs import Layout
from trainings.comparison import (
    LAYOUTS,
    Trained,
    killed_and_resumed,
    plain_loop,
    under_paceline,
)

PAD, BEGIN, TOKENS = 0, 1, 12


class Reversed(Dataset[Any]):
    """Sequences of 1 to 9 tokens, to be said backwards."""

    def __len__(self) -> int:
        return 70

    def __getitem__(self, number: int) -> Any:
        generator = torch.Generator().manual_seed(number)
        length = int(torch.randint(1, 10, (), generator=generator))
        words = torch.randint(2, TOKENS, (length,), generator=generator)
        return words, words.flip(0)


class Translator(nn.Module):
    """A mean of the source's tokens that are there begins a recurrent decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(TOKENS, 16, padding_idx=PAD)
        self.decoder = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, TOKENS)

    def forward(self, source: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        there = (source != PAD).sum(1, keepdim=True)
        context = self.words(source).sum(1) / there
        heard, _ = self.decoder(self.words(said), context[None])
        logits: torch.Tensor = self.head(heard)
        return logits


def padded(samples: list[Any]) -> Any:
    source, target = (
        pad_sequence(list(column), batch_first=True) for column in zip(*samples, strict=True)
    )
    said = F.pad(target[:, :-1], (1, 0), value=BEGIN)
    return (source, said), target


def token_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def translation() -> paceline.Training:
    """Batches of 16 do not divide 70 samples, and hardly any two have equally many tokens."""
    return paceline.Training(
        model=Translator,
        loss=token_loss,
        weight=lambda target: (target != PAD).sum(),
        data=Reversed(),
        collate=padded,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        batch=16,
        steps=12,
    )


@pytest.fixture(scope="module")
def plain() -> Trained:
    def loss_of(model: nn.Module, samples: list[Any]) -> torch.Tensor:
        inputs, target = padded(samples)
        return token_loss(model(*inputs), target)

    return plain_loop(
        translation(), lambda model: torch.optim.Adam(model.parameters(), lr=0.01), loss_of
    )


@pytest.mark.parametrize(
    "layout",
    [*LAYOUTS.values(), Layout(replicas=2, micro_batch=3)],
    ids=[*LAYOUTS, "2 replicas with micro-batches"],
)
def test_it_equals_a_plain_loop(layout: Layout, plain: Trained, tmp_path: Path) -> None:
    under_paceline(translation, layout, tmp_path).check_equals(plain)


@pytest.mark.nightly  # no state of its own: test_buffers.py, test_closures.py and others have one
def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    killed_and_resumed(translation, LAYOUTS["2 replicas"], tmp_path, killed_after=5).check_equals(
        plain.after(4)
    )
