"""A language model of 7 billion parameters, in plain PyTorch: too large for any one device.

See what each of 1,024 devices would hold, compute and send, on a laptop:

    paceline run examples/dry_run/train.py --dry-run --nodes 128 --devices 8 \
        --shards 128 --tensor 8 --micro-batch 1 --recompute block
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import paceline

VOCABULARY, CONTEXT = 32_000, 4096
LAYERS, WIDTH, HEADS, HIDDEN = 32, 4096, 32, 11_008


class Attention(nn.Module):
    """Causal attention whose queries and keys are turned by their positions."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, stream: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(stream).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query, key = turned(query, turn), turned(key, turn)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """Two layers, the first of them gated (SwiGLU)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(F.silu(self.gate(stream)) * self.up(stream))
        return out


class Block(nn.Module):
    """Attention and a feed-forward network, each added to the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.norm_feed = nn.RMSNorm(WIDTH)
        self.feed = FeedForward()

    def forward(self, stream: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        stream = stream + self.attention(self.norm_attention(stream), turn)
        out: torch.Tensor = stream + self.feed(self.norm_feed(stream))
        return out


class Decoder(nn.Module):
    """Predicts the next token at every position."""

    turn: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("turn", turns(CONTEXT, WIDTH // HEADS), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        stream, turn = self.embed(tokens), self.turn[:, : tokens.shape[1]]
        for block in self.blocks:
            stream = block(stream, turn)
        logits: torch.Tensor = self.head(self.norm(stream))
        return logits


def turns(length: int, size: int) -> torch.Tensor:
    """Cosines and sines of the angle of every position and pair of channels."""
    speeds = 10_000.0 ** (-torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(length), speeds).repeat(1, 2)
    return torch.stack([angles.cos(), angles.sin()])


def turned(heads: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding."""
    first, second = heads.chunk(2, dim=-1)
    return heads * turn[0] + torch.cat([-second, first], dim=-1) * turn[1]


class Tokens(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random text, the same every time, and the same text one token on."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        text = torch.randint(VOCABULARY, (CONTEXT + 1,), generator=generator)
        return text[:-1], text[1:]


def next_token_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def training() -> paceline.Training:
    return paceline.Training(
        model=Decoder,
        loss=next_token_loss,
        data=Tokens(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1),
        batch=1024,
        steps=100_000,
        clip=1.0,
    )


if __name__ == "__main__":
    paceline.fit(training())
