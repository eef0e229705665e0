"""The local part of a tensor that may be sharded, and the full tensor.

DTensors are recognized by their methods: importing DTensor takes half a second, which plain
replicas need not spend.
"""

import torch


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return whether this worker holds only a shard of a tensor."""
    return hasattr(tensor, "to_local")


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return this worker's shard of a tensor, or the tensor itself if it is not sharded."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor of one that may be sharded. All its workers call this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
