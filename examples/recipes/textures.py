"""Images like ImageNet's in form, synthesized, so that nothing is downloaded."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset


@dataclass(frozen=True)
class Textures(Dataset[Any]):
    """Each class is a grating of its own angle, period and colors, shifted and in noise."""

    samples: int
    size: int
    classes: int
    seed: int
    augmented: bool

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        kind = index % self.classes
        of_class = torch.Generator().manual_seed(kind)
        angle, period = torch.rand(2, generator=of_class) * torch.tensor([math.pi, 6.0])
        colors = torch.rand(3, 1, 1, generator=of_class) * 2 * math.pi
        generator = torch.Generator().manual_seed(self.seed * self.samples + index)
        shift = torch.rand((), generator=generator) * 2 * math.pi
        noise = torch.randn(3, self.size, self.size, generator=generator)
        rows, columns = torch.meshgrid(*[torch.arange(self.size)] * 2, indexing="ij")
        wave = (rows * angle.sin() + columns * angle.cos()) * 2 * math.pi / (4 + period)
        image = torch.sin(wave + shift + colors) + noise
        if self.augmented and torch.rand(()) < 0.5:
            image = image.flip(1)
        return image, kind


def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.argmax(1) == target).float().mean()
