"""A model with batch normalisation, and batches for it, that several tests share."""

import torch
from torch import nn

CHANNELS = 4


def rows(step: int, count: int, *shape: int) -> torch.Tensor:
    """A batch whose channels have means and deviations of their own; the same on every worker."""
    generator = torch.Generator().manual_seed(step)
    batch = torch.randn(count, CHANNELS, *shape, generator=generator)
    spread = torch.arange(1.0, CHANNELS + 1).view(-1, *[1] * len(shape))
    return batch * spread + 2 - spread


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(CHANNELS, CHANNELS), nn.BatchNorm1d(CHANNELS)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = stream + self.norm(self.layer(stream)).relu()
        return out


def blocks() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block(), Block())
