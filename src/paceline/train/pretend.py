"""A worker of a large cluster, played here: tensors without memory, and peers that are not there.

The one place that knows the private parts of torch that this takes. `tests/train/test_pretend.py`
fails when a release of torch changes them.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.specs import Layout
from paceline.train.groups import Groups
from paceline.train.layouts import spread
from paceline.train.place import Place

if TYPE_CHECKING:
    from paceline.train.store import SignedStore

_OTHER_WORDS = {
    ".numpy() is not supported for tensor subclasses": "asks for an array of NumPy",
    "passed to FakeTensor.__format__": "writes the number in a tensor",
}
"""What torch says where code asks for numbers in other ways, and what that means."""


def what_is_lacking(error: Exception) -> str | None:
    """What code asked a tensor without memory for, if that is what an error says."""
    if isinstance(error, DataDependentOutputException):
        return "asks for the number in a tensor"
    if isinstance(error, DynamicOutputShapeException):
        return "gives a tensor whose shape depends on numbers"
    if isinstance(error, UnsupportedOperatorException):
        return f"uses {error.func}, which does not say what shape it gives"
    return next((means for words, means in _OTHER_WORDS.items() if words in str(error)), None)


def in_reality() -> AbstractContextManager[Any]:
    """A block whose tensors have memory again."""
    manager: AbstractContextManager[Any] = unset_fake_temporarily()
    return manager


@contextmanager
def pretending(layout: Layout) -> Iterator[None]:
    """A block whose tensors have shapes, but no memory, and in which the engine needs no peers."""
    with ExitStack() as stack:
        stack.enter_context(replaced(spread, "DistributedDataParallel", _LonelyCopy))
        if layout.shards > 1:
            from torch.distributed.fsdp._fully_shard import _fsdp_param  # noqa: PLC0415

            stack.enter_context(replaced(_fsdp_param, "_chunk_with_empty", Chunks))
        if layout.tensor > 1:
            from paceline.train.slices import functions as sliced_functions  # noqa: PLC0415

            # Which random numbers slices draw would be decided by one.
            stack.enter_context(
                replaced(sliced_functions, "own_random_numbers", lambda *_, **__: nullcontext())
            )
        if layout.pipeline > 1:
            from torch.distributed.pipelining import schedules  # noqa: PLC0415

            stack.enter_context(
                replaced(schedules._PipelineSchedule, "_warmup_p2p", _agree_at_once)
            )
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield


class PretendedGroups(Groups):
    """Groups of any number of workers, in which this one is alone and every call returns at once.

    To torch the device is a CPU: its engine is the same, and needs no accelerator.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place, torch.device("cpu"), None)
        if place.workers == 1:
            return
        store = FakeStore()
        self._store = cast("SignedStore", store)
        dist.init_process_group("fake", store=store, rank=place.rank, world_size=place.workers)

    def mesh(self, layout: Layout) -> DeviceMesh:
        """The workers as a grid; groups that this worker is not in are left out."""
        if self._mesh is None:
            names = ("pipeline", "replicas", "shards", "tensor")
            sizes = {name: getattr(layout, name) for name in names if getattr(layout, name) > 1}
            with in_reality():
                grid = torch.arange(layout.workers).view(*sizes.values())
                (here,) = (grid == self.place.rank).nonzero().tolist()
                groups = [
                    dist.new_group(
                        grid[(*here[:number], slice(None), *here[number + 1 :])].tolist()
                    )
                    for number in range(grid.ndim)
                ]
                self._mesh = DeviceMesh.from_group(
                    groups if grid.ndim > 1 else groups[0],
                    self.device.type,
                    mesh=grid if grid.ndim > 1 else None,
                    mesh_dim_names=tuple(sizes),
                )
        return self._mesh

    def _own_of(self, every: Iterable[list[int]]) -> "dist.ProcessGroup | None":
        mine = next((ranks for ranks in every if self.place.rank in ranks), None)
        with in_reality():
            return None if mine is None else dist.new_group(mine)


def current_backward() -> int | None:
    """The number of the backward that is under way in this thread."""
    number: int = torch._C._current_graph_task_id()
    return None if number == -1 else number


def without_memory(model: nn.Module) -> nn.Module:
    """A model as built in a block that pretends, with what was read from files put off, too."""
    done: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and not isinstance(parameter, FakeTensor):
                if id(parameter) not in done:  # tied weights stay one parameter
                    done[id(parameter)] = nn.Parameter(
                        torch.empty_like(parameter.detach()), parameter.requires_grad
                    )
                module._parameters[name] = done[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and not isinstance(buffer, FakeTensor):
                module._buffers[name] = torch.empty_like(buffer)
    # It is where it is to be; torch cannot move a tensor without memory in place.
    model.to = lambda *_, **__: model  # type: ignore[method-assign]
    return model


def exchanged_weights(model: nn.Module) -> Iterator[torch.Tensor]:
    """What shards have gathered of each other's weights."""
    for parameter in _sharded_parameters(model):
        yield from parameter.all_gather_outputs


def whole_gradients(model: nn.Module) -> Iterator[torch.Tensor]:
    """Gradients that shards have not divided yet, since more micro-batches follow."""
    for parameter in _sharded_parameters(model):
        gathered = getattr(parameter, "_unsharded_param", None)
        for gradient in (
            parameter.unsharded_accumulated_grad,
            None if gathered is None else gathered.grad,
        ):
            if gradient is not None:
                yield gradient


def _sharded_parameters(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        if hasattr(module, "_get_fsdp_state"):
            state: Any = module._get_fsdp_state()  # type: ignore[operator]
            for group in state._fsdp_param_groups:
                yield from group.fsdp_params


class _LonelyCopy(DistributedDataParallel):
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
        _LonelyCopy.last = weakref.ref(self)

    last: "weakref.ref[_LonelyCopy] | None" = None


def settled_buckets() -> list[torch.Tensor]:
    """After a first step: lay gradients out for other copies in the order that they came in.

    DDP does so before its second step, and asks the other copies; so here it is done by numbers
    that are real. The memory that it takes is real as well, but nobody touches it.
    """
    copy = _LonelyCopy.last() if _LonelyCopy.last else None
    with in_reality(), _New() as new:
        if copy is None or not copy.reducer._rebuild_buckets():
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


def _agree_at_once(
    schedule: object, stages: Iterable[Any], has_backward: bool, p2p_done: bool
) -> None:
    """Stages vote by messages whether all know their shapes; ours always do."""
    from torch.distributed.pipelining._utils import InferenceMode  # noqa: PLC0415

    del schedule, p2p_done
    for stage in stages:
        assert not InferenceMode.needs_dynamic(stage._user_meta, has_backward)
        stage._inference_mode = InferenceMode.STATIC


@contextmanager
def replaced(owner: Any, name: str, stand_in: Any) -> Iterator[None]:
    """A block in which something stands in for a part of a module or class."""
    before = getattr(owner, name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        setattr(owner, name, before)
