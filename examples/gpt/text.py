"""Text that every machine has: the source of Python's standard library."""

import sysconfig
from pathlib import Path

import torch
from torch.utils.data import Dataset

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
