"""A small GPT, in plain PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Return the stream after this block."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.mix(self.norm_attention(stream)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.project(mixed.transpose(1, 2).flatten(2))
        out: torch.Tensor = stream + self.feed(self.norm_feed(stream))
        return out


class GPT(nn.Module):
    """Predicts the next token at every position."""

    def __init__(self, vocabulary: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token."""
        stream = self.embed(text)
        for block in self.blocks:
            stream = block(stream)
        logits: torch.Tensor = self.head(self.norm(stream))
        return logits


def next_token_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def random_text(vocabulary: int, samples: int, context: int) -> TensorDataset:
    """Return tokens from a seed, each sample with the token that follows at every position."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(vocabulary, (samples, context + 1), generator=generator)
    return TensorDataset(text[:, :-1], text[:, 1:])
