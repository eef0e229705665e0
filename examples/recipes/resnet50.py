"""ResNet-50 as on ImageNet: SGD with warm-up and cosine, label smoothing, no decay of norms.

The images are synthesized, so that nothing is downloaded. In small, in about a minute:
    paceline run examples/recipes/resnet50.py -n 2 -- --small
"""

import argparse
from functools import partial
from typing import Any

import torch
from textures import Textures, accuracy
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

import paceline

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4
RATE_PER_IMAGE = 0.1 / 256
"""The learning rate grows with the batch (Goyal et al. 2017), from that of He et al. 2015."""


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.reduce = convolution(inputs, width, 1)
        self.spatial = convolution(width, width, 3, stride)  # here, as torchvision and NVIDIA do
        self.expand = convolution(width, outputs, 1)
        self.shortcut = (
            convolution(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else None
        )
        norm = self.expand[1]
        assert isinstance(norm, nn.BatchNorm2d)
        nn.init.zeros_(norm.weight)  # a block begins as its shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = F.relu(self.spatial(F.relu(self.reduce(x))))
        return F.relu(self.expand(inside) + (self.shortcut(x) if self.shortcut else x))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


def resnet50(classes: int = 1000, width: int = 64) -> nn.Module:
    stem = [convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    stages, inputs = [], width
    for stage, blocks in enumerate(BLOCKS):
        inner = width * 2**stage
        for block in range(blocks):
            stages.append(Bottleneck(inputs, inner, 2 if stage and not block else 1))
            inputs = EXPANSION * inner
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*stem, *stages, *head)


def optimizer(parameters: paceline.Parameters, rate: float) -> torch.optim.Optimizer:
    decayed = [each for _, each in parameters.named() if each.ndim > 1]
    others = [each for _, each in parameters.named() if each.ndim == 1]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": 1e-4}, {"params": others}]
    return torch.optim.SGD(groups, lr=rate, momentum=0.9, nesterov=True)


def settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="small images, few classes, narrow")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--images", type=int, default=1_281_167)
    given = parser.parse_args()
    if given.small:
        given.batch, given.epochs, given.images = 64, 3, 1280
    return given


def training() -> paceline.Training:
    given = settings()
    classes, size, width = (10, 32, 16) if given.small else (1000, 224, 64)
    rate = 0.1 if given.small else RATE_PER_IMAGE * given.batch
    steps = given.epochs * -(-given.images // given.batch)
    warm_up = steps // 18  # 5 of 90 epochs

    def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
        rise = LinearLR(optimizer, 0.1, total_iters=warm_up)
        fall = CosineAnnealingLR(optimizer, steps - warm_up)
        return SequentialLR(optimizer, [rise, fall], [warm_up])

    data = partial(Textures, size=size, classes=classes)
    return paceline.Training(
        model=lambda: resnet50(classes, width),
        loss=partial(F.cross_entropy, label_smoothing=0.1),
        data=data(given.images, seed=0, augmented=True),
        optimizer=partial(optimizer, rate=rate),
        schedule=schedule,
        batch=given.batch,
        epochs=given.epochs,
        validation=paceline.Validation(
            data(max(200, given.images // 25), seed=1, augmented=False),
            metrics={"accuracy": accuracy},
            best="accuracy",
        ),
    )


if __name__ == "__main__":
    paceline.fit(training())
