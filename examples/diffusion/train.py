"""Diffusion: learn to draw handwritten digits, 8 x 8 pixels, by removing noise. No download.

The dataset draws a moment and noise for each sample. Paceline seeds that by epoch and sample, so
that any number of workers trains on the same noise, and every epoch on another one.
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import paceline

MOMENTS, WIDTH = 100, 32
KEPT = torch.linspace(1 - 1e-3, 1 - 0.1, MOMENTS).cumprod(0)
"""The share of the image, not of noise, in the variance at each moment."""


class NoisyDigits(Dataset[Any]):
    """Pairs ((noisy image, moment), noise)."""

    def __init__(self) -> None:
        images, _ = load_digits(return_X_y=True)
        self.images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 8 - 1

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        moment = torch.randint(MOMENTS, ())
        noise = torch.randn(1, 8, 8)
        kept = KEPT[moment]
        return (kept.sqrt() * self.images[index] + (1 - kept).sqrt() * noise, moment), noise


class Denoiser(nn.Module):
    """Estimate the noise in an image of a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.moments = nn.Embedding(MOMENTS, WIDTH)
        self.into = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.inside = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(3))
        self.out = nn.Conv2d(WIDTH, 1, 3, padding=1)

    def forward(self, image: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        seen = self.into(image)
        for layer in self.inside:
            seen = seen + layer(F.silu(seen + self.moments(moment)[..., None, None]))
        noise: torch.Tensor = self.out(F.silu(seen))
        return noise


def training() -> paceline.Training:
    return paceline.Training(
        model=Denoiser,
        loss=F.mse_loss,
        data=NoisyDigits(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=2e-3),
        batch=128,
        epochs=20,
        average=0.99,
    )


@torch.no_grad()
def drawn(model: nn.Module, images: int, device: torch.device) -> torch.Tensor:
    """Draw images: begin with noise, and remove a little at every moment."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(images, 1, 8, 8, generator=generator).to(device)
    for moment in reversed(range(MOMENTS)):
        kept = KEPT[moment]
        before = KEPT[moment - 1] if moment else torch.tensor(1.0)
        step = 1 - kept / before
        noise = model(x, torch.full((images,), moment, device=device))
        x = (x - step / (1 - kept).sqrt() * noise) / (1 - step).sqrt()
        fresh = torch.randn(images, 1, 8, 8, generator=generator).to(device)
        x = x + (step * (1 - before) / (1 - kept)).sqrt() * fresh
    return x


def draw() -> None:
    """Train as `training`, and draw a row of digits with the averaged weights."""
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)
        with trainer.averaged():
            row = torch.cat(list(drawn(trainer.model, 8, trainer.device)[:, 0]), dim=1)
        shades = ((row.clamp(-1, 1) + 1) * 2).round().int().tolist()
        trainer.print("\n".join("".join(" .:*#"[each] * 2 for each in line) for line in shades))


if __name__ == "__main__":
    draw()
