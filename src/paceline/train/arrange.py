"""A model arranged as a layout says: replicated, sharded, or both, by PyTorch's own means."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.specs import Layout
from paceline.train.blocks import blocks
from paceline.train.groups import Groups
from paceline.train.recompute import recompute

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Arranged:
    """The callable form of a model under a layout."""

    def __init__(self, model: nn.Module, layout: Layout, groups: Groups) -> None:
        self._dtype = _DTYPES.get(layout.precision)
        self._device_type = groups.device.type
        recompute(model, layout)
        if layout.compile:
            model.compile()
        self._sharded = layout.shards > 1
        self._synchronises = True
        self._module = _distributed(model, layout, groups)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Forward."""
        return self._module(*arguments, **named)

    def computing(self) -> Any:
        """A block that computes in the layout's precision; forward and loss belong inside."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device_type, dtype=self._dtype)

    def synchronising(self, last: bool) -> Any:
        """A block whose backward exchanges gradients only if it is the step's last."""
        if isinstance(self._module, DistributedDataParallel):
            return nullcontext() if last else self._module.no_sync()
        if self._sharded and last is not self._synchronises:
            self._module.set_requires_gradient_sync(last)  # type: ignore[operator]
            self._synchronises = last
        return nullcontext()


def _distributed(model: nn.Module, layout: Layout, groups: Groups) -> nn.Module:
    if layout.workers == 1:
        return model
    if layout.shards == 1:
        return DistributedDataParallel(
            model,
            device_ids=None if groups.device.type == "cpu" else [groups.device.index],
            bucket_cap_mb=layout.bucket_megabytes,
        )
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 -- slow to load, seldom needed

    mesh = groups.mesh(replicas=layout.replicas, shards=layout.shards)
    for block in blocks(model):
        fully_shard(block, mesh=mesh, reshard_after_forward=layout.reshard)
    # What is left for the root is needed first in backward: freeing it would gather it twice.
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model
