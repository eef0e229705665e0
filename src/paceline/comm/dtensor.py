"""What a worker holds of a tensor, and the whole of it; FSDP's tensors are known by their methods,
since loading DTensor takes half a second that replicas need not wait for."""

import torch


def held(tensor: torch.Tensor) -> torch.Tensor:
    """What this worker holds of a tensor that may be sharded."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def unsharded(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a tensor that may be sharded; all shards call this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
