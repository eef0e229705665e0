# mypy: disable-error-code="no-untyped-call"
"""Steps of Paceline and of plain PyTorch on the same model, in blocks that alternate.

The target of a run: its layout says whether the plain script uses DDP or FSDP2.
"""

import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import paceline
from paceline.comm.device_kind import device_kind
from paceline.conformance.worker.figures import write_figures
from paceline.conformance.worker.model import GPT, next_token_loss, random_text
from paceline.specs import Run

VOCABULARY = 256
BUDGET_SECONDS = 20.0
STEPS, MOST_ROUNDS, LEAST_ROUNDS = 4, 30, 5


@dataclass(frozen=True)
class Size:
    """A model, and the samples of a worker in a step."""

    layers: int
    width: int
    heads: int
    context: int
    samples: int


SIZES = {
    "small": Size(layers=4, width=128, heads=4, context=64, samples=16),
    "large": Size(layers=12, width=1024, heads=16, context=256, samples=16),
}
"""0.9 and 152 million parameters: a step takes tens of milliseconds, on a CPU core or on a GPU."""


def compared() -> None:
    """Measure both ways, and write the ratios of their speeds."""
    run = Run.open(Path(os.environ["PACELINE_RUN"]))
    size, workers = SIZES[sys.argv[1]], run.job.workers
    data = random_text(VOCABULARY, 4096, size.context)

    def network() -> nn.Module:
        return GPT(VOCABULARY, size.layers, size.width, size.heads)

    training = paceline.Training(
        model=network,
        loss=next_token_loss,
        data=data,
        optimizer=_optimizer,
        batch=size.samples * workers,
        steps=(MOST_ROUNDS + 1) * STEPS + 1,
    )
    with paceline.start(training) as trainer:
        device = trainer.device
        loader = DataLoader(data, batch_size=size.samples, shuffle=True)
        divided = _sharded if run.plan.layout.shards > 1 else _replicated
        batches = iter(trainer)
        rounds = _alternating(
            {
                "plain": _plain_step(divided(network().to(device)), loader, device),
                "paceline": lambda: trainer.step(next(batches)),
                "plain again": _plain_step(divided(network().to(device)), loader, device),
            },
            device,
        )
        write_figures(run.path, trainer.rank, _figures(rounds))


def _optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def _replicated(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model) if dist.is_initialized() else model


def _sharded(model: nn.Module) -> nn.Module:
    device = next(model.parameters()).device
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    assert isinstance(model, GPT)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _plain_step(
    model: nn.Module, loader: DataLoader[Any], device: torch.device
) -> Callable[[], None]:
    """Return a function that loads a batch and takes a step, as torch's tutorials have it."""
    optimizer = _optimizer(model.parameters())
    batches = itertools.chain.from_iterable(itertools.repeat(loader))

    def step() -> None:
        inputs, target = (each.to(device) for each in next(batches))
        next_token_loss(model(inputs), target).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _alternating(
    ways: dict[str, Callable[[], object]], device: torch.device
) -> list[dict[str, float]]:
    """Return the seconds per step of every way and round; the first round warms up."""
    for step in ways.values():
        _block(step, device)
    begin = time.perf_counter()
    rounds = [{way: _block(step, device) for way, step in ways.items()}]
    left = _agreed(BUDGET_SECONDS / (time.perf_counter() - begin), device)
    for number in range(min(max(left, LEAST_ROUNDS), MOST_ROUNDS) - 1):
        order = list(ways.items())[:: 1 if number % 2 else -1]
        rounds.append({way: _block(step, device) for way, step in order})
    return rounds


def _block(step: Callable[[], object], device: torch.device) -> float:
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    device_kind().synchronize(device)
    return (time.perf_counter() - begin) / STEPS


def _agreed(number: float, device: torch.device) -> int:
    """Return the least of all workers' numbers."""
    least = torch.tensor(number, device=device)
    if dist.is_initialized():
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return int(least)


def _figures(rounds: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "ratios": [each["plain"] / each["paceline"] for each in rounds],
        "null_ratios": [each["plain"] / each["plain again"] for each in rounds],
        "plain_step_seconds": statistics.median(each["plain"] for each in rounds),
        "steps_per_block": STEPS,
    }
