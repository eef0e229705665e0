"""The job of `recovery.py`, which all ways share: model, samples, and what is written down.

Computing is emulated: a forward sleeps for as long as its samples take, so that four devices fit
on two cores and starting a worker anew takes no time away from the others. Gradients, weights and
what is sent are real.
"""

import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from benchmarks.recovery.sizes import BATCH, WORKERS

STEPS = 30_000
"""More than any run takes: the harness ends it."""
STEP_SECONDS = float(os.environ.get("RECOVERY_STEP_SECONDS", "0.02"))
PEER_TIMEOUT_SECONDS = float(os.environ.get("RECOVERY_PEER_TIMEOUT_SECONDS", "5"))
WIDTHS = (256, 512, 512, 16)
_ROWS = 4096


class Paced(nn.Module):
    """A network that takes a given time for each sample."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        first, second, third, classes = WIDTHS
        self.layers = nn.Sequential(
            *(nn.Linear(first, second), nn.ReLU()),
            *(nn.Linear(second, third), nn.ReLU()),
            nn.Linear(third, classes),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Sleep, then compute."""
        time.sleep(len(inputs) * STEP_SECONDS * WORKERS / BATCH)
        outputs: Tensor = self.layers(inputs)
        return outputs


class Points(Dataset[tuple[Tensor, Tensor]]):
    """As many samples as the steps take, of few rows that come again."""

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(1)
        self._inputs = torch.randn(_ROWS, WIDTHS[0], generator=random)
        self._labels = torch.randint(WIDTHS[-1], (_ROWS,), generator=random)

    def __len__(self) -> int:
        """Samples."""
        return STEPS * BATCH

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """A sample and its class."""
        return self._inputs[number % _ROWS], self._labels[number % _ROWS]

    def rows(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Several samples."""
        chosen = torch.tensor(numbers) % _ROWS
        return self._inputs[chosen], self._labels[chosen]


def loss_sum(output: Tensor, label: Tensor) -> Tensor:
    """Over samples; a mean over the global batch is this by its size."""
    return F.cross_entropy(output, label, reduction="sum")


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


class History:
    """Which samples enter each step that this process takes, and when it committed which."""

    def __init__(self, worker: int) -> None:
        path = Path(os.environ["RECOVERY_HISTORY"], f"{os.getpid()}.jsonl")
        self._file = path.open("w", buffering=1)
        self._write({"pid": os.getpid(), "worker": worker})

    def entering(self, step: int, attempt: str, ids: Sequence[int]) -> None:
        """These samples are in the gradient of a step, if this attempt at it is committed."""
        self._write({"step": step, "attempt": attempt, "ids": list(ids)})

    def committed(self, step: int, attempt: str) -> None:
        """The update of a step is in the weights. An attempt has another name than the one before
        whenever other workers take part, or new processes."""
        self._write({"at": time.monotonic(), "step": step, "attempt": attempt})

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line) + "\n")
