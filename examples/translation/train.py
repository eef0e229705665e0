"""Sequence to sequence with padding: numbers in English words, to be written in digits."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

import paceline

ONES = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
LETTERS = "#^$ abcdefghijklmnopqrstuvwxyz0123456789"  # padding, begin, end, space
PAD, BEGIN, END = 0, 1, 2


def in_words(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{ONES[hundreds]} hundred"] if hundreds else []
    return " ".join(filter(None, [*words, TENS[rest // 10], ONES[rest % 10]]))


def encoded(text: str) -> torch.Tensor:
    return torch.tensor([LETTERS.index(letter) for letter in text])


class Numbers(Dataset[Any]):
    """Numbers of three digits without teens, which have words of their own."""

    deterministic = True

    def __init__(self) -> None:
        self.numbers = [each for each in range(1, 1000) if each % 100 // 10 != 1]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        number = self.numbers[index]
        return encoded(in_words(number)), encoded(f"^{number}$")


def padded(samples: list[Any]) -> Any:
    source, digits = (
        pad_sequence(list(column), batch_first=True) for column in zip(*samples, strict=True)
    )
    return (source, digits[:, :-1]), digits[:, 1:]


class Translator(nn.Module):
    """A transformer that ignores padding."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.places = nn.Embedding(64, width)
        self.transformer = nn.Transformer(width, 4, 2, 2, 128, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, len(LETTERS))

    def placed(self, text: torch.Tensor) -> torch.Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        both: torch.Tensor = self.letters(text) + self.places(places)
        return both

    def forward(self, source: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
        length = digits.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=digits.device).triu(1)
        heard = self.transformer(
            self.placed(source),
            self.placed(digits),
            tgt_mask=later,
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
        )
        logits: torch.Tensor = self.head(heard)
        return logits


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def training() -> paceline.Training:
    return paceline.Training(
        model=Translator,
        loss=loss,
        weight=lambda target: (target != PAD).sum(),
        data=Numbers(),
        collate=padded,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
        batch=64,
        epochs=5,
        clip=1.0,
    )


if __name__ == "__main__":
    paceline.fit(training())
