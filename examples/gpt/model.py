"""A small GPT over bytes, in plain PyTorch: nothing in it knows of Paceline."""

import torch
from torch import nn
from torch.nn import functional as F

BYTES = 256


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to the stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        batch, length, width = stream.shape
        parts = self.query_key_value(self.norm_attention(stream)).chunk(3, dim=-1)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        out: torch.Tensor = stream + self.feed(self.norm_feed(stream))
        return out


class GPT(nn.Module):
    """Predicts the next byte at every position."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(BYTES, width)
        self.position = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        stream = self.embed(text) + self.position[: text.shape[1]]
        logits: torch.Tensor = self.head(self.norm(self.blocks(stream)))
        return logits


def next_byte_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
