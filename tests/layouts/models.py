"""Small models of the kinds that layouts must carry, and one way to train each of them."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import paceline
from paceline.schedulers.task_placement import placement
from train.trainings import recorded_losses

VOCABULARY, WIDTH, LENGTH, SAMPLES, BATCH, STEPS = 32, 16, 8, 70, 24, 20


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
            part.unflatten(-1, (4, -1)).transpose(1, 2)
            for part in self.mix(self.norm(stream)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.out(mixed.transpose(1, 2).flatten(2))
        out: torch.Tensor = stream + self.feed(stream)
        return out


class TiedGPT(nn.Module):
    """A decoder whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        stream = self.embed(text)
        for block in self.blocks:
            stream = block(stream)
        logits: torch.Tensor = self.head(stream)
        return logits


class EncoderDecoder(nn.Module):
    """Two inputs: what is read, and what has been said so far."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.ModuleList(Block() for _ in range(2))
        self.decoder = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory = self.embed(source)
        for block in self.encoder:
            memory = block(memory)
        stream = self.embed(target) + memory.mean(dim=1, keepdim=True)
        for block in self.decoder:
            stream = block(stream)
        logits: torch.Tensor = self.head(stream)
        return logits


class ResidualCNN(nn.Module):
    """A small residual network with group normalization, which does not mix samples."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.stages = nn.Sequential(*(ResidualBlock() for _ in range(4)))
        self.head = nn.Linear(8, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.stages(self.stem(images)).mean(dim=(2, 3)))
        return logits


class ResidualBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 1)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = images + self.body(images)
        return out


class BatchNormCNN(ResidualCNN):
    """The same with batch normalization, which does mix them."""

    def __init__(self) -> None:
        super().__init__()
        for block in self.stages:
            assert isinstance(block, ResidualBlock)
            block.body[1] = nn.BatchNorm2d(8)


MODELS: dict[str, type[nn.Module]] = {
    "gpt": TiedGPT,
    "encoder-decoder": EncoderDecoder,
    "cnn": ResidualCNN,
    "batch-norm": BatchNormCNN,
}


def data_for(model: str) -> "Dataset[Any]":
    generator = torch.Generator().manual_seed(3)
    if model in ("cnn", "batch-norm"):
        images = torch.randn(SAMPLES, 1, 6, 6, generator=generator)
        return TensorDataset(images, images.flatten(1)[:, :4].argmax(dim=1))
    text = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=generator)
    return TensorDataset(text, text.roll(-1, dims=1))


def training_of(model: str, **changes: Any) -> paceline.Training:
    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, -2), target.flatten())

    settings: dict[str, Any] = {
        "model": MODELS[model],
        "loss": loss,
        "data": data_for(model),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        "batch": BATCH,
        "steps": STEPS,
        "clip": 1.0,
    }
    if model == "encoder-decoder":
        settings["split"] = lambda batch: ((batch[0], batch[0]), batch[1])
    return paceline.Training(**settings | changes)


def trained(model: str, folder: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Train, evaluate and export; what came out, from worker 0's side."""
    from safetensors.torch import load_file

    with paceline.start(training_of(model, **changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        evaluation = trainer.evaluate(
            data_for(model),
            metrics={"right": lambda out, target: (out.argmax(-1) == target).float().mean()},
        )
        path = Path(folder) / "weights.safetensors"
        trainer.export(path)
    if placement().rank:
        return {}
    weights = load_file(path)
    plain = MODELS[model]()
    plain.load_state_dict(weights)
    return {
        "losses": recorded_losses(),
        "weights": torch.cat([weights[name].flatten() for name in sorted(weights)]).tolist(),
        "evaluation": evaluation,
        "settings": path.with_suffix(".json").read_text(),
    }
