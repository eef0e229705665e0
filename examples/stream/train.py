"""Streaming text: a stream of lines without an index, which is saved and resumed by its state.

The text is the source of Python's standard library, which every machine has. Each worker reads all
lines; `collate` encodes only those that the worker keeps.
"""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import IterableDataset

import paceline

LENGTH, BYTES = 64, 256


class Lines(IterableDataset[str]):
    """The lines of all files of a folder, one file after the other."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).glob("*.py"))
        self.file, self.line = 0, 0

    def __iter__(self) -> Iterator[str]:
        while self.file < len(self.paths):
            lines = self.paths[self.file].read_text(errors="replace").splitlines()
            while self.line < len(lines):
                self.line += 1  # before it is yielded, so that the state counts it
                if lines[self.line - 1].strip():
                    yield lines[self.line - 1]
            self.file, self.line = self.file + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"file": self.file, "line": self.line}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.file, self.line = state["file"], state["line"]


def encoded(lines: list[str]) -> Any:
    texts = torch.zeros(len(lines), LENGTH + 1, dtype=torch.long)
    for row, line in zip(texts, lines, strict=True):
        content = line.encode()[:LENGTH]
        row[1 : len(content) + 1] = torch.tensor(list(content))
    return texts[:, :-1], texts[:, 1:]


class Model(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.letters = nn.Embedding(BYTES, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, BYTES)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        heard, _ = self.memory(self.letters(text))
        logits: torch.Tensor = self.head(heard)
        return logits


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)


def training() -> paceline.Training:
    return paceline.Training(
        model=Model,
        loss=loss,
        weight=lambda target: (target != 0).sum(),
        data=Lines(sysconfig.get_paths()["stdlib"]),
        collate=encoded,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=3e-3),
        batch=64,
        steps=60,
    )


if __name__ == "__main__":
    paceline.fit(training())
