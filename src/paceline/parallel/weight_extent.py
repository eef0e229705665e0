"""Extent of a worker's part of a weight within the full weight."""

from typing import TYPE_CHECKING

import torch

from paceline.checkpoints.tensor_extent import Extent
from paceline.specs import Layout

if TYPE_CHECKING:
    from paceline.parallel.slices.sliced_model import Sliced


def extent(
    name: str, tensor: torch.Tensor, layout: Layout, rank: int, sliced: "Sliced | None"
) -> Extent:
    """Return the extent of a parameter or buffer in a replica of the model; for a tensor that is
    not divided, include how many workers of the replica hold the same one."""
    position = layout.position(rank)
    # A DTensor's shape is that of all shards together.
    shape = tuple(tensor.shape)
    if sliced is not None and sliced.is_sliced(name):
        found = sliced.extent(name, shape)
    else:
        found = Extent.everything(shape).among(layout.tensor, position.slice)
    if layout.shards > 1:
        if hasattr(tensor, "to_local"):
            each = -(-shape[0] // layout.shards)
            begin = min(position.shard * each, shape[0])
            found = found.rows(begin, min(each, shape[0] - begin))
        else:
            found = found.among(layout.shards, position.shard)
    return found
