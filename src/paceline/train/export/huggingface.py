"""Weights as a Hugging Face folder, written by the model's own `save_pretrained`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paceline.specs import PacelineError


def check(model: nn.Module) -> None:
    """Refuse a model that cannot write such a folder."""
    if not hasattr(model, "save_pretrained"):
        raise PacelineError(
            f'export(format="huggingface") was asked for, but {type(model).__name__} has no'
            " save_pretrained, as models of transformers have",
            fix='give format="safetensors"',
        )


def write(
    weights: Iterator[tuple[str, torch.Tensor]], path: Path, model: nn.Module, file_bytes: int
) -> Path:
    """Write weights, an index if they need several files, and the configuration."""
    state = dict(weights)
    # Tied weights are one tensor for save_pretrained, which writes it once.
    first_names: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = first_names.setdefault(id(parameter), name)
        if first in state and name in state:
            state[name] = state[first]
    save: Any = model.save_pretrained
    save(path, state_dict=state, max_shard_size=file_bytes)
    return path / "settings.json"
