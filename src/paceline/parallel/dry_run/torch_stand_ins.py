"""Stand-ins for parts of torch that would wait for workers that do not exist.

This uses private APIs of torch through `comm/torch_internals.py`;
`tests/parallel/test_fake_workers.py` fails when a torch release changes how they work together.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

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


class ValueNeeded(RuntimeError):
    """Code used a fake tensor in a way that needs its value; `use` says how."""

    def __init__(self, use: str) -> None:
        super().__init__(use)
        self.use = use


def refuse_numpy(tensor: torch.Tensor, **_: object) -> NoReturn:
    """Stand in for `Tensor.numpy`, which names no reason for a fake tensor."""
    del tensor
    raise ValueNeeded("converts a tensor to NumPy")


def formatted(tensor: torch.Tensor, spec: str) -> str:
    """Stand in for `Tensor.__format__`: `f"{tensor:.3f}"` needs the value, `f"{tensor}"` not."""
    if spec:
        raise ValueNeeded("formats a tensor's value")
    return str(tensor)


class FakeReplica(DistributedDataParallel):
    """A DDP replica without peers."""

    def __init__(self, model: nn.Module, **named: Any) -> None:
        # Skip the comparison with the other replicas: nothing would answer.
        named["init_sync"] = False
        super().__init__(model, **named)

        def exchange(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            del state
            dist.all_reduce(bucket.buffer(), group=self.process_group)
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        self.register_comm_hook(None, exchange)
        FakeReplica.last = weakref.ref(self)

    last: "weakref.ref[FakeReplica] | None" = None


def settled_buckets() -> list[torch.Tensor]:
    """Rebuild DDP's buckets after a first step, in the order in which gradients arrived.

    DDP does so before its second step and broadcasts the order, which needs real values. So this
    runs outside fake mode: the memory it takes is real, too, but never touched.
    """
    copy = FakeReplica.last() if FakeReplica.last else None
    with unset_fake_temporarily(), _New() as new:
        if copy is None or not rebuild_buckets(copy):
            return []
    return [tensor for tensor in new.tensors if tensor.dtype.is_floating_point]


class _New(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the tensors created inside it."""

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
    """The chunks that FSDP divides a parameter into, each created on demand.

    FSDP reads two of them; creating one for each of thousands of shards would take minutes.
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
    schedule: object, stages: Iterable[Any], has_backward: bool, connections: bool
) -> None:
    """Skip the stages' vote on whether all know their shapes; ours always do."""
    del schedule, connections
    for stage in stages:
        use_static_shapes(stage, has_backward=has_backward)


def copied(tensor: torch.Tensor, memo: dict[int, torch.Tensor]) -> torch.Tensor:
    """Deep-copy a fake tensor, as models do that clone their layers."""
    if id(tensor) not in memo:
        copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        if isinstance(tensor, nn.Parameter):
            copy = nn.Parameter(copy, tensor.requires_grad)
        memo[id(tensor)] = copy
    return memo[id(tensor)]


def communicated_weights(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the buffers with the weights gathered from other shards."""
    for parameter in fsdp_parameters(model):
        yield from parameter.all_gather_outputs


def whole_gradients(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield gradients that are not reduce-scattered yet, because more micro-batches follow."""
    for parameter in fsdp_parameters(model):
        yield from unsharded_gradients(parameter)
