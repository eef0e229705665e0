"""Contrastive learning as in CLIP: handwritten digits and their names. No download.

An image tower and a text tower learn to tell which of a batch's names belongs to which image. The
loss compares every image with every name of the global batch, on any number of workers.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

import paceline

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
LETTERS = 5
WIDTH = 32


def letters() -> torch.Tensor:
    """Return the names as numbers of letters, padded with zeros."""
    spelled = [[ord(letter) - ord("a") + 1 for letter in name] for name in NAMES]
    return torch.tensor([each + [0] * (LETTERS - len(each)) for each in spelled])


class Clip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, WIDTH))
        self.letters = nn.Embedding(27, 16)
        self.text = nn.Sequential(nn.Linear(16 * LETTERS, 64), nn.ReLU(), nn.Linear(64, WIDTH))
        self.scale = nn.Parameter(torch.full((1,), 2.0))

    def forward(self, image: torch.Tensor, name: torch.Tensor) -> tuple[torch.Tensor, ...]:
        image, name = self.image(image), self.text(self.letters(name).flatten(1))
        return F.normalize(image, dim=-1), F.normalize(name, dim=-1), self.scale.exp()


def loss(output: tuple[torch.Tensor, ...], label: torch.Tensor) -> torch.Tensor:
    """Compare all images with all names. Several images of a batch may have the same name."""
    image, name, scale = output
    logits = scale * paceline.gather(image) @ paceline.gather(name).T
    every = paceline.gather(label)
    same = (every[:, None] == every).float()
    pairs = same / same.sum(1, keepdim=True)
    return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2


def pairs() -> TensorDataset:
    images, labels = load_digits(return_X_y=True)
    pixels, numbers = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    return TensorDataset(pixels, letters()[numbers], numbers)


def training() -> paceline.Training:
    data = pairs()
    return paceline.Training(
        model=Clip,
        loss=loss,
        data=Subset(data, [number for number in range(len(data)) if number % 5]),
        split=lambda batch: ((batch[0], batch[1]), batch[2]),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
        batch=100,
        epochs=8,
    )


def named() -> None:
    """Train, then name images that it has not seen by the closest of the ten names."""
    data = pairs()
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)

        def accuracy(output: tuple[torch.Tensor, ...], label: torch.Tensor) -> torch.Tensor:
            image, name, _ = output
            closest = paceline.gather(label)[(image @ paceline.gather(name).T).argmax(1)]
            return (closest == label).float().mean()

        others = Subset(data, range(0, len(data), 5))
        found = trainer.evaluate(others, metrics={"accuracy": accuracy})
        print(f"named {found.metrics['accuracy']:.1%} of the other images")


if __name__ == "__main__":
    named()
