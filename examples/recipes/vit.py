"""ViT-L/16 from scratch: AdamW with strong decay, warm-up and cosine, clipped gradients.

The images are synthesized. In small, in about a minute:
    paceline run examples/recipes/vit.py -n 2 -- --small
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from textures import Textures, accuracy
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

import paceline

RATE_AT_4096 = 3e-3
"""Dosovitskiy et al. 2020, table 3; the batch there is 4,096."""


class ViT(nn.Module):
    def __init__(
        self, size: int, patch: int, layers: int, width: int, heads: int, classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    *(width, heads, 4 * width, 0.0, F.gelu), batch_first=True, norm_first=True
                )
                for _ in range(layers)
            )
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patches], dim=1)
        classes: torch.Tensor = self.head(self.norm(self.blocks(tokens + self.positions))[:, 0])
        return classes


def vit_large() -> nn.Module:
    return ViT(size=224, patch=16, layers=24, width=1024, heads=16, classes=1000)


def training() -> paceline.Training:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="small images, few classes and layers")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--images", type=int, default=1_281_167)
    given = parser.parse_args()
    size, classes, rate = 224, 1000, RATE_AT_4096 * given.batch / 4096
    model: Callable[[], nn.Module] = vit_large
    if given.small:
        size, classes, rate = 32, 10, 2e-3
        given.batch, given.epochs, given.images = 64, 6, 1280
        model = partial(ViT, size=32, patch=8, layers=3, width=96, heads=4, classes=10)
    steps = given.epochs * -(-given.images // given.batch)
    warm_up = steps // 10

    def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
        rise = LinearLR(optimizer, 0.01, total_iters=warm_up)
        fall = CosineAnnealingLR(optimizer, steps - warm_up)
        return SequentialLR(optimizer, [rise, fall], [warm_up])

    data = partial(Textures, size=size, classes=classes)
    return paceline.Training(
        model=model,
        loss=F.cross_entropy,
        data=data(given.images, seed=0, augmented=True),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=rate, weight_decay=0.3),
        schedule=schedule,
        batch=given.batch,
        epochs=given.epochs,
        clip=1.0,
        validation=paceline.Validation(
            data(max(200, given.images // 25), seed=1, augmented=False),
            metrics={"accuracy": accuracy},
            best="accuracy",
        ),
    )


if __name__ == "__main__":
    paceline.fit(training())
