"""Fused updates: one kernel per update, which an accelerator skips by itself.

Whether a gradient is finite is known only on the device. The host would have to wait for it in
every step before it decides; torch's fused kernels read it where it is.
"""

import torch
from torch import nn

from paceline.comm.dtensor import is_sharded
from paceline.comm.torch_internals import can_skip, fuse
from paceline.parallel.parallel_model import ParallelModel

_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
"""Optimizers with a fused kernel on every accelerator; not their subclasses, which may differ."""


def fuse_on_accelerator(
    optimizer: torch.optim.Optimizer, parallel_model: ParallelModel, device: torch.device
) -> None:
    """Choose the fused kernel on an accelerator, unless the user has chosen one."""
    if device.type == "cpu" or can_skip(optimizer) or type(optimizer) not in _FUSED:
        return
    groups = optimizer.param_groups
    if any(group.get(name) is not None for group in groups for name in ("foreach", "fused")):
        return
    if any(group.get(name) for group in groups for name in ("capturable", "differentiable")):
        return
    if any(each.is_complex() for group in groups for each in group["params"]):
        return
    if isinstance(optimizer, torch.optim.SGD) and any(
        is_sharded(each) for group in groups for each in group["params"]
    ):
        return  # torch knows no fused kernel of SGD for shards
    modules = parallel_model.model.modules()
    if any(isinstance(each, nn.Embedding | nn.EmbeddingBag) and each.sparse for each in modules):
        return  # sparse gradients
    fuse(optimizer)
