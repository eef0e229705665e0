"""What every job is given, and how it hands over what it trained."""

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import Dataset, Subset

WORKERS, EPOCHS = 3, 2
BATCH = int(os.environ.get("CORRECTNESS_BATCH", "16"))
SAMPLES = int(os.environ.get("CORRECTNESS_SAMPLES", "203"))
REORDERED = "CORRECTNESS_REORDERED" in os.environ
LOCAL_BATCH = round(BATCH / WORKERS)
"""The nearest to the global batch that a framework without one can be told."""


def chosen(data: Dataset[Any]) -> Subset[Any]:
    """Return as many samples as the setting has, always the same ones in the same order.

    For the null, the samples of each batch are in another order.
    """
    random = torch.Generator().manual_seed(0)
    order = torch.randperm(len(data), generator=random)[:SAMPLES]  # type: ignore[arg-type]
    if REORDERED:
        batches = torch.split(order, BATCH)
        order = torch.cat([each[torch.randperm(len(each), generator=random)] for each in batches])
    return Subset(data, order.tolist())


def record(model: nn.Module, steps: int, **figures: float) -> None:
    """Write the weights, the number of steps and other figures, on worker 0."""
    if dist.is_initialized() and dist.get_rank():
        return
    folder = Path(os.environ["CORRECTNESS_OUTPUT"])
    state = {name: each.detach().contiguous() for name, each in model.state_dict().items()}
    save_file(state, folder / "weights.safetensors")
    (folder / "figures.json").write_text(json.dumps({"steps": steps, **figures}))
