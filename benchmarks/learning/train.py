"""Three small tasks with SGD and AdamW, tuned at a batch of 16: `training TASK OPTIMIZER`.

- `bytes`: the next byte of Python's own library, from eight before, by a perceptron.
- `attention`: the same text, the next of every byte of 32, by a transformer of two blocks.
- `teacher`: the class that a fixed network gives to random inputs, with a tenth of wrong labels.
"""

import math
import sys
import sysconfig
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import paceline

TUNED_AT, SAMPLES = 16, 65_536
WARM_UP = 0.02
RATES = {
    ("bytes", "sgd"): 0.05,
    ("bytes", "adamw"): 0.008,
    ("attention", "sgd"): 0.4,
    ("attention", "adamw"): 0.016,
    ("teacher", "sgd"): 0.02,
    ("teacher", "adamw"): 0.008,
}
"""The best of a grid of factors of two, closed on both sides, with a seed that no comparison uses:
`python -m benchmarks.learning --tune`."""
HELD_OUT = 8_192
CONTEXTS = {"bytes": 8, "attention": 32}


@cache
def text() -> torch.Tensor:
    """Modules of Python's library as bytes, in the order of their names."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    whole = b"".join(path.read_bytes() for path in files[:60])
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8).long()


def windows(task: str, samples: int, *, held_out: bool) -> TensorDataset:
    """Windows of the text at random places; those held out are from its last tenth."""
    known, length = text(), CONTEXTS[task] + 1
    edge = len(known) * 9 // 10
    first, last = (edge, len(known) - length) if held_out else (0, edge - length)
    generator = torch.Generator().manual_seed(int(held_out))
    starts = torch.randint(first, last, (samples,), generator=generator)
    found = known[starts[:, None] + torch.arange(length)]
    target = found[:, -1] if task == "bytes" else found[:, 1:]
    return TensorDataset(found[:, :-1], target)


def taught(samples: int, *, held_out: bool) -> TensorDataset:
    """Inputs with the teacher's labels."""
    generator = torch.Generator().manual_seed(2)
    first, second = (torch.randn(64, size, generator=generator) / 8 for size in (64, 10))
    generator = torch.Generator().manual_seed(3 + held_out)
    inputs = torch.randn(samples, 64, generator=generator)
    label = ((inputs @ first).tanh() @ second).argmax(1)
    noise = torch.randint(0, 10, (samples,), generator=generator)
    wrong = torch.rand(samples, generator=generator) < 0.1
    return TensorDataset(inputs, noise.where(wrong, label))


def data(task: str, *, held_out: bool) -> TensorDataset:
    """The data of a task; a sample is seen once."""
    samples = HELD_OUT if held_out else 2 * SAMPLES
    if task == "teacher":
        return taught(samples, held_out=held_out)
    return windows(task, samples, held_out=held_out)


class Attention(nn.Module):
    """A causal transformer of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, 32), nn.Embedding(CONTEXTS["attention"], 32)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(32, 256)
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXTS["attention"])
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return scores of the next byte at every place."""
        hidden = self.bytes(text) + self.places.weight
        for block in self.blocks:
            hidden = block(hidden, src_mask=self.mask, is_causal=True)
        scores: torch.Tensor = self.head(hidden)
        return scores


def model(task: str) -> nn.Module:
    """The model of a task."""
    if task == "attention":
        return Attention()
    if task == "teacher":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(
        nn.Embedding(256, 16), nn.Flatten(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 256)
    )


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy over all places."""
    return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())


def optimizer(name: str, rate: float) -> Callable[[Any], torch.optim.Optimizer]:
    """Build an optimizer from parameters."""
    if name == "sgd":
        return partial(torch.optim.SGD, lr=rate, momentum=0.9)
    return partial(torch.optim.AdamW, lr=rate, betas=(0.9, 0.99), weight_decay=0.01)


def cosine(steps: int) -> Callable[[torch.optim.Optimizer], Any]:
    """Warm up, then decay to zero along a cosine."""

    def factor(step: int) -> float:
        begun = min(1.0, (step + 1) / (WARM_UP * steps))
        return begun * (1 + math.cos(math.pi * step / steps)) / 2

    return lambda built: torch.optim.lr_scheduler.LambdaLR(built, factor)


def training(
    task: str = "", name: str = "", batch: int = TUNED_AT, rate: float | None = None
) -> paceline.Training:
    """Return the training of a task; without one, of the script's arguments."""
    if not task:
        task, name = sys.argv[1:3]
    steps = SAMPLES // batch
    return paceline.Training(
        model=partial(model, task),
        loss=loss,
        data=data(task, held_out=False),
        optimizer=optimizer(name, rate or RATES[task, name]),
        schedule=cosine(steps),
        batch=batch,
        steps=steps,
    )
