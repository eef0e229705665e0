"""What stands in for parts of torch that would wait for workers which are not there.

The private parts of torch that this takes are in `comm/torch_internals.py`;
`tests/parallel/test_fake_workers.py` fails when a torch release changes how they work together.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.comm.torch_internals import (
    GradBucket,
    TorchDispatchMode,
    fsdp_parameters,
    rebuild_buckets,
    unset_fake_temporarily,
    unsharded_gradients,
    use_static_shapes,
)


class LonelyCopy(DistributedDataParallel):
    """A copy of the model that exchanges gradients with copies that are not there."""

    def __init__(self, model: nn.Module, **named: Any) -> None:
        # Not compared with the other copies before training: they would have to answer.
        named["init_sync"] = False
        super().__init__(model, **named)

        def exchange(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            del state
            dist.all_reduce(bucket.buffer(), group=self.process_group)
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        self.register_comm_hook(None, exchange)
        LonelyCopy.last = weakref.ref(self)

    last: "weakref.ref[LonelyCopy] | None" = None


def settled_buckets() -> list[torch.Tensor]:
    """After a first step: lay gradients out for other copies in the order that they came in.

    DDP does so before its second step, and asks the other copies; so here it is done by numbers
    that are real. The memory that it takes is real as well, but nobody touches it.
    """
    copy = LonelyCopy.last() if LonelyCopy.last else None
    with unset_fake_temporarily(), _New() as new:
        if copy is None or not rebuild_buckets(copy):
            return []
    return [tensor for tensor in new.tensors if tensor.dtype.is_floating_point]


class _New(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what is newly made while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.empty.memory_format:
            self.tensors.append(result)
        return result


class Chunks:
    """What FSDP divides a parameter into, each piece made only when it is asked for.

    It asks for two of them; thousands, one for each shard, would take minutes to make.
    """

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._dimension = tensor, dim
        self._each = -(-tensor.shape[dim] // num_chunks)

    def __getitem__(self, number: int) -> torch.Tensor:
        whole = self._tensor.shape[self._dimension]
        begin = number * self._each
        if begin >= whole and number > 0:
            return self._tensor.new_empty(0)
        length = min(self._each, whole - begin)
        return self._tensor.narrow(self._dimension, begin, length)


def agree_at_once(
    schedule: object, stages: Iterable[Any], has_backward: bool, p2p_done: bool
) -> None:
    """Stages vote by messages whether all know their shapes; ours always do."""
    del schedule, p2p_done
    for stage in stages:
        use_static_shapes(stage, has_backward=has_backward)


def copied(tensor: torch.Tensor, memo: dict[int, torch.Tensor]) -> torch.Tensor:
    """A deep copy of a tensor without memory, as by models that clone their layers."""
    if id(tensor) not in memo:
        copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        if isinstance(tensor, nn.Parameter):
            copy = nn.Parameter(copy, tensor.requires_grad)
        memo[id(tensor)] = copy
    return memo[id(tensor)]


def exchanged_weights(model: nn.Module) -> Iterator[torch.Tensor]:
    """What shards have gathered of each other's weights."""
    for parameter in fsdp_parameters(model):
        yield from parameter.all_gather_outputs


def whole_gradients(model: nn.Module) -> Iterator[torch.Tensor]:
    """Gradients that shards have not divided yet, since more micro-batches follow."""
    for parameter in fsdp_parameters(model):
        yield from unsharded_gradients(parameter)
