"""What is trained: a stack of layers whose bytes are counted, and three tasks to be good at."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset, Subset, TensorDataset

from benchmarks.sync.compression.candidates import LAYERS
from examples.digits.train import digits, network
from examples.gpt.model import GPT, next_byte_loss
from examples.gpt.text import CONTEXT, Source
from paceline.user.training import Measure, Training

FOLDS = 5
BETAS = (0.9, 0.95)
"""Of Adam. With 0.999 it remembers for a thousand steps how large the first gradients were, which
error feedback makes larger: top-1 % then ends 0.5 points behind on signals, and 0.1 with 0.95, with
which uncompressed gradients end higher, too."""
_CLASSES = 10
_HELD_OUT_TEXTS = 512
_LEARNT_SIGNALS, _HELD_OUT_SIGNALS = 10_000, 20_000
_TEMPLATE_POINTS, _SIGNAL_POINTS = 12, 40
_NOISE = 0.6


@dataclass(frozen=True)
class Task:
    """Something to learn, and what it is judged by on samples that are held out."""

    data: "Dataset[Any]"
    held_out: "Dataset[Any]"
    model: Callable[[], nn.Module]
    loss: Measure
    metrics: dict[str, Measure]
    batch: int
    steps: int
    clip: float | None = None


def training_of(task: Task, rate: float, seed: int, order_seed: int) -> Training:
    """First weights by the seed, samples in the order of the other one. The rate rises over the
    first twentieth of the steps and falls to zero with the last."""
    rising = max(1, task.steps // 20)

    def part(step: int) -> float:
        falling = (step - rising) / (task.steps - rising)
        return min((step + 1) / rising, 0.5 + 0.5 * math.cos(math.pi * max(0.0, falling)))

    def model() -> nn.Module:
        torch.manual_seed(seed)
        return task.model()

    return Training(
        model=model,
        loss=task.loss,
        data=task.data,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=rate, betas=BETAS),
        schedule=lambda optimizer: LambdaLR(optimizer, part),
        batch=task.batch,
        steps=task.steps,
        clip=task.clip,
        seed=order_seed,
    )


def layers_to_count(width: int) -> Training:
    """Linear layers on random numbers: nothing is to be learned, but all of it is trained."""
    generator = torch.Generator().manual_seed(1)
    inputs, target = torch.randn(2, 64, width, generator=generator)
    return Training(
        model=lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS))),
        loss=F.mse_loss,
        data=TensorDataset(inputs, target),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
        batch=16,
        steps=10_000,
    )


def digits_task(seed: int) -> Task:
    """The images of handwritten digits; each seed holds out another fifth of all."""
    every = digits()
    numbers = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
    folds = list(numbers.tensor_split(FOLDS))
    held_out = folds.pop(seed % FOLDS)
    return Task(
        data=Subset(every, torch.cat(folds).tolist()),
        held_out=Subset(every, held_out.tolist()),
        model=network,
        loss=F.cross_entropy,
        metrics={"accuracy": _accuracy},
        batch=64,
        steps=1000,
    )


def signals_task(seed: int) -> Task:
    """Ten shapes of curves, shifted, stretched, tilted and under noise, as many as one wants: so
    many are held out that a hundredth of a point is seen."""
    del seed
    return Task(
        data=_signals(_LEARNT_SIGNALS, seed=1),
        held_out=_signals(_HELD_OUT_SIGNALS, seed=2),
        model=_curve_network,
        loss=F.cross_entropy,
        metrics={"accuracy": _accuracy},
        batch=128,
        steps=2000,
    )


def text_task(seed: int) -> Task:
    """The GPT of the examples, made small, on the source of the standard library; other files than
    those that are learned from are held out."""
    del seed
    text = Source(size_bytes=4_000_000)
    kept = len(text) * 9 // 10
    apart = (len(text) - kept) // _HELD_OUT_TEXTS
    return Task(
        data=Subset(text, range(kept)),
        held_out=Subset(text, range(kept, kept + apart * _HELD_OUT_TEXTS, apart)),
        model=lambda: GPT(layers=2, width=64, heads=2, context=CONTEXT),
        loss=next_byte_loss,
        metrics={"accuracy": _accuracy_of_bytes},
        batch=32,
        steps=400,
        clip=1.0,
    )


TASKS: dict[str, Callable[[int], Task]] = {
    "digits": digits_task,
    "signals": signals_task,
    "text": text_task,
}


def _curve_network() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, _SIGNAL_POINTS)),
        *(nn.Conv1d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Flatten(), nn.Linear(32 * _SIGNAL_POINTS // 4, 64), nn.ReLU()),
        nn.Linear(64, _CLASSES),
    )


def _accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.argmax(-1) == target).float().mean()


def _accuracy_of_bytes(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return _accuracy(output.flatten(0, 1), target.flatten())


def _signals(samples: int, seed: int) -> TensorDataset:
    """The shapes are the same for every seed."""
    shapes = torch.randn(_CLASSES, _TEMPLATE_POINTS, generator=torch.Generator().manual_seed(0))
    drawn = torch.Generator().manual_seed(seed)
    labels = torch.randint(_CLASSES, (samples,), generator=drawn)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(samples, 1, generator=drawn)

    places = torch.linspace(-1, 1, _SIGNAL_POINTS)
    # Where on its shape each point of a signal lies: outside of it there is only noise.
    on_shape = (places * uniform(1.2, 2.0) + uniform(-0.6, 0.6)).view(samples, 1, -1)
    grid = torch.stack([on_shape, torch.zeros_like(on_shape)], dim=-1)
    curves = F.grid_sample(shapes[labels].view(samples, 1, 1, -1), grid, align_corners=True).view(
        samples, -1
    )
    noise = torch.randn(samples, 1, _SIGNAL_POINTS, generator=drawn)
    smooth = F.avg_pool1d(noise, 5, stride=1, padding=2).view(samples, -1)
    signals = uniform(0.7, 1.3) * curves + uniform(-0.5, 0.5) * places + _NOISE * smooth
    return TensorDataset(signals + 0.1 * noise.view(samples, -1), labels)
