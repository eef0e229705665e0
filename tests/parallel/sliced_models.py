"""Small models written as people write them, for slicing."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, KEY_HEADS, VOCABULARY, LENGTH = 32, 4, 2, 192, 8
HEAD = WIDTH // HEADS


class FusedAttention(nn.Module):
    """Queries, keys and values from one layer, split in one of the usual ways."""

    def __init__(self, split: str = "chunk") -> None:
        super().__init__()
        self.split = split
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, value: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, _ = value.shape
        fused = self.qkv(value)
        if self.split == "view":
            heads = fused.view(batch, length, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4).unbind(0)
        elif self.split == "heads":
            heads = fused.view(batch, length, HEADS, 3 * HEAD).transpose(1, 2).chunk(3, dim=-1)
        else:
            parts = fused.chunk(3, dim=-1) if self.split == "chunk" else fused.split(WIDTH, dim=2)
            heads = [part.view(batch, length, HEADS, HEAD).transpose(1, 2) for part in parts]
        query, key, value = heads
        mixed = F.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return out


class GPTBlock(nn.Module):
    def __init__(self, split: str = "chunk", dropout: float = 0.0) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = FusedAttention(split)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        stream = stream + self.dropout(self.attention(self.before(stream), mask))
        out: torch.Tensor = stream + self.down(self.dropout(F.gelu(self.up(self.between(stream)))))
        return out


class GPT(nn.Module):
    """A decoder with positions, whose head may be its embedding."""

    def __init__(
        self,
        split: str = "chunk",
        *,
        tied: bool = True,
        mask: str = "none",
        pooled: bool = False,
        vocabulary: int = VOCABULARY,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.mask, self.pooled = mask, pooled
        self.embed, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(GPTBlock(split, dropout) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=not tied)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        mask = None
        if self.mask == "boolean":
            mask = torch.ones(len(text), 1, length, length, dtype=torch.bool).tril()
        elif self.mask == "of heads":
            slopes = torch.linspace(0.1, 1, HEADS)[None, :, None, None]
            mask = slopes * torch.arange(length).float().expand(len(text), HEADS, length, length)
        stream = self.embed(text) + self.positions(torch.arange(length))
        for block in self.blocks:
            stream = block(stream, mask)
        stream = self.norm(stream)
        logits: torch.Tensor = self.head(stream.mean(dim=1) if self.pooled else stream)
        return logits


class LlamaBlock(nn.Module):
    """Separate layers, fewer keys than queries, norms of heads, rotated by position, gated."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.query_norm, self.key_norm = nn.RMSNorm(HEAD), nn.RMSNorm(HEAD)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, stream: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        normed = self.before(stream)
        query, key, value = (
            layer(normed).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query = _rotated(self.query_norm(query), turn)
        key = _rotated(self.key_norm(key), turn).repeat_interleave(HEADS // KEY_HEADS, dim=1)
        value = value.repeat_interleave(HEADS // KEY_HEADS, dim=1)
        scores = query @ key.transpose(-1, -2) / HEAD**0.5
        future = torch.ones(stream.shape[1], stream.shape[1], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        mixed = scores.softmax(dim=-1) @ value
        stream = stream + self.out(mixed.transpose(1, 2).flatten(2))
        normed = self.between(stream)
        out: torch.Tensor = stream + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return out


def _rotated(heads: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * turn.cos() + torch.cat((-second, first), dim=-1) * turn.sin()


class Llama(nn.Module):
    def __init__(self, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.blocks = nn.ModuleList(LlamaBlock() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        turn = torch.outer(torch.arange(text.shape[1]).float(), torch.linspace(1, 0.1, HEAD))
        stream = self.embed(text)
        for block in self.blocks:
            stream = block(stream, turn)
        logits: torch.Tensor = self.head(self.norm(stream))
        return logits


class Biased(nn.Module):
    """Attention with a learnt bias of positions, and a gate fused with what it gates."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.bias = nn.Embedding(LENGTH, HEADS)
        self.gate = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        stream = self.embed(text)
        query, key, value = (
            layer(stream).unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        steps = torch.arange(text.shape[1])
        distance = (steps[:, None] - steps).abs()
        scores = query @ key.mT + self.bias(distance).permute(2, 0, 1)
        stream = stream + self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
        gate, gated = self.gate(stream).chunk(2, dim=-1)
        stream = stream + self.down(torch.sigmoid(gate) * gated)
        logits: torch.Tensor = self.head(stream)
        return logits


class Leaky(nn.Module):
    """A layer's result is added to the stream without a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        stream = self.embed(text)
        query, key, value = self.mix(stream).chunk(3, dim=-1)
        stream = stream + F.scaled_dot_product_attention(query, key, value)
        stream = stream + self.down(torch.tanh(self.up(stream)))
        logits: torch.Tensor = self.head(stream)
        return logits


class Encoder(nn.Module):
    """PyTorch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layers(self.embed(text)))
        return logits


def gpt2(attention: str = "sdpa") -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(  # type: ignore[no-untyped-call]
        GPT2Config(
            vocab_size=VOCABULARY + 1,  # as odd as the true one's
            n_positions=LENGTH,
            n_embd=WIDTH,
            n_layer=2,
            n_head=HEADS,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation=attention,  # type: ignore[call-arg]
        )
    )


def llama(attention: str = "sdpa") -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            num_key_value_heads=KEY_HEADS,
            max_position_embeddings=LENGTH,
            attn_implementation=attention,  # type: ignore[call-arg]
        )
    )


def text(seed: int = 1, samples: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (samples, LENGTH), generator=generator)


def next_word(logits: Any, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())
