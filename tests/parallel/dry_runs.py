"""A small transformer that dry runs and real ranks both train, and what real ranks sent for it."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.parallel.dry_run.dry_run import dry_run
from paceline.parallel.dry_run.operator_watch import Watching
from paceline.parallel.dry_run.transfers import TransferRecorder, listed
from paceline.schedulers.task_placement import placement
from paceline.specs import DryRun, Layout, RankDryRun, Transfer

WORDS, LENGTH, WIDTH, HEADS, BLOCKS = 64, 8, 32, 4, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.mix(self.norm(stream)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.out(mixed.transpose(1, 2).flatten(2))
        out: torch.Tensor = stream + self.feed(stream)
        return out


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        stream = self.embed(text)
        for block in self.blocks:
            stream = block(stream)
        logits: torch.Tensor = self.head(stream)
        return logits


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def decoding(**changes: Any) -> paceline.Training:
    """A training of the small transformer."""
    text = torch.randint(WORDS, (64, LENGTH + 1), generator=torch.Generator().manual_seed(3))
    settings: dict[str, Any] = {
        "model": Decoder,
        "loss": loss,
        "data": TensorDataset(text[:, :-1], text[:, 1:]),
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        "batch": 16,
        "steps": 2,
        "clip": 1.0,
    }
    return paceline.Training(**settings | changes)


def tried(layout: Layout, devices: int = 8, **changes: Any) -> DryRun:
    """A dry run of it."""
    return dry_run(decoding(**changes), layout, devices_per_node=min(devices, layout.workers))


def first(layout: Layout, **changes: Any) -> RankDryRun:
    """What worker 0 would hold and send."""
    return tried(layout, **changes).ranks[0]


def sent_in_a_step(layout: Layout) -> tuple[Transfer, ...]:
    """What a real rank sends in a step after the first two, in which things are set up."""
    recorder = TransferRecorder(layout, placement().rank, placement().workers)
    with paceline.start(decoding(steps=3)) as trainer:
        *first, last = trainer
        for batch in first:
            trainer.step(batch)
        with Watching(recorder):
            trainer._stepper.forward_and_backward(last, 3)
            trainer._stepper.update(3)
    return listed(recorder.counts)
