"""Where what a worker holds of a weight lies in the whole weight."""

from typing import TYPE_CHECKING

import torch

from paceline.checkpoints.tensor_extent import Extent
from paceline.specs import Layout

if TYPE_CHECKING:
    from paceline.parallel.slices.sliced_model import Sliced


def extent(
    name: str, tensor: torch.Tensor, layout: Layout, rank: int, sliced: "Sliced | None"
) -> Extent:
    """The place of a parameter or buffer in a copy of the model; of a whole one, how many workers
    of that copy hold it alike."""
    position = layout.position(rank)
    # The shape of a sharded tensor is that of all shards together.
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
