"""Weights as a folder of torch.distributed.checkpoint (DCP)."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn


def write(
    weights: Iterator[tuple[str, torch.Tensor]], path: Path, model: nn.Module, file_bytes: int
) -> Path:
    """Write the weights by their names; one file, or one per tensor if that would be too large.

    One worker writes: if all did, DCP would exchange its plan among them as pickles.
    """
    # Slow to load, and seldom needed.
    from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415

    del model
    state = dict(weights)
    one_file = sum(tensor.nbytes for tensor in state.values()) <= file_bytes
    writer = FileSystemWriter(path, single_file_per_rank=one_file)
    save(state, storage_writer=writer, no_dist=True)
    return path / "settings.json"
