"""A worker's own part of a tensor that may be sharded, and the full tensor.

DTensors are recognized by their methods: loading DTensor takes half a second, which replicas need
not wait for.
"""

import torch


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return this worker's part of a tensor that may be sharded."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor of one that may be sharded. All shards call this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
