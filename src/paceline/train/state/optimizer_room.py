"""Room for an optimizer's state, which the optimizer itself creates only in its first step."""

from typing import Any

import torch

from paceline.checkpoints.manifest import Contents
from paceline.parallel.parallel_model import StateTensor


def keys_by_parameter(manifest: Contents, whose: str) -> dict[str, set[str]]:
    """Return the names of the optimizer state that a checkpoint has for each parameter."""
    found: dict[str, set[str]] = {}
    for name in (*manifest.tensors, *manifest.scalars):
        rest = name.removeprefix(f"{whose}optimizer/")
        if rest != name:
            parameter, _, key = rest.rpartition("/")
            found.setdefault(parameter, set()).add(key)
    return found


def room_for(stored: StateTensor, manifest: Contents, key: str, whose: str) -> Any:
    """Return a scalar of the optimizer state, or an empty tensor to load one of its tensors."""
    name = f"{whose}optimizer/{stored.name}/{key}"
    if name in manifest.scalars:
        scalar = manifest.scalars[name]
        if scalar.dtype is None:
            return scalar.value
        return torch.tensor(scalar.value, dtype=getattr(torch, scalar.dtype))
    kept = manifest.tensors[name]
    dtype = getattr(torch, kept.dtype)
    if kept.shape == stored.extent.whole:
        return torch.empty_like(stored.tensor.detach(), dtype=dtype)
    return torch.empty(kept.shape, dtype=dtype, device=stored.tensor.device)
