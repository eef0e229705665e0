"""A fake worker of a large cluster: fake tensors without memory, and peers that do not exist.

This uses private APIs of torch through `comm/torch_internals.py`;
`tests/parallel/test_fake_workers.py` fails when a torch release changes how they work together.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from paceline.comm.groups import Groups
from paceline.comm.torch_internals import (
    CAUSAL_MASK_CHECK,
    READ_NUMBER,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    UnsupportedOperatorException,
    fake_store,
    fsdp_chunking,
    own_buffers,
    own_parameters,
    pipeline_warmup,
    unset_fake_temporarily,
)
from paceline.comm.torch_loading import loading
from paceline.parallel import data_parallel
from paceline.parallel.dry_run.torch_stand_ins import (
    Chunks,
    FakeReplica,
    ValueNeeded,
    agree_at_once,
    copied,
    formatted,
    refuse_numpy,
)
from paceline.specs import Layout, Placement

if TYPE_CHECKING:
    from paceline.comm.signed_store import SignedStore


def what_is_lacking(error: Exception) -> str | None:
    """Describe the value that code needed from a fake tensor; None for any other error."""
    if isinstance(error, DataDependentOutputException):
        return "reads a tensor's value"
    if isinstance(error, DynamicOutputShapeException):
        return "returns a tensor whose shape depends on values"
    if isinstance(error, UnsupportedOperatorException):
        return f"uses {error.func}, which does not define the shape of its result"
    return error.use if isinstance(error, ValueNeeded) else None


def in_reality() -> AbstractContextManager[Any]:
    """Return a context manager in which tensors have memory again."""
    manager: AbstractContextManager[Any] = unset_fake_temporarily()
    return manager


@contextmanager
def pretending(layout: Layout | None = None) -> Iterator[None]:
    """Give tensors shapes but no memory inside the block; the engine needs no peers there.

    `layout`: of the engine that runs there, if one does.
    """
    _load(layout)
    layout = layout or Layout()
    with ExitStack() as stack:
        stack.enter_context(replaced(data_parallel, "DistributedDataParallel", FakeReplica))
        # torch's transformer reads a mask to see whether it is causal; shapes do not depend on it.
        stack.enter_context(replaced(*CAUSAL_MASK_CHECK, lambda *_, **__: False))
        # torch refuses these with errors that say nothing of values.
        stack.enter_context(replaced(FakeTensor, "numpy", refuse_numpy))
        stack.enter_context(replaced(FakeTensor, "__format__", formatted))
        # torch's own method copies the mode with each tensor, and later crashes the process.
        stack.enter_context(replaced(FakeTensor, "__deepcopy__", copied))
        if layout.shards > 1:
            stack.enter_context(replaced(*fsdp_chunking(), Chunks))
        if layout.tensor > 1:
            from paceline.parallel.slices import functions  # noqa: PLC0415

            # Sliced layers read a seed for their random numbers from a tensor.
            stack.enter_context(
                replaced(functions, "own_random_numbers", lambda *_, **__: nullcontext())
            )
        if layout.pipeline > 1:
            stack.enter_context(replaced(*pipeline_warmup(), agree_at_once))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield


def _load(layout: Layout | None) -> None:
    """Import the modules that fake tensors and the engine import on demand.

    Imported inside the block, they would keep fake tensors and crash the process at exit.
    """
    names = ["torch.distributed.tensor"]  # torch looks for its kind among the arguments
    if layout is None:
        layout = Layout()
    else:
        names += ["torch._dynamo"]  # any optimizer imports it
    if layout.shards > 1:
        names += ["torch.distributed.fsdp"]
    if layout.tensor * layout.pipeline > 1:
        names += ["pipeline.pipelined", "pipeline.stages", "trial"]
    if layout.tensor > 1:
        names += ["slices.sliced_model", "slices.slicing"]
    with loading():
        for name in names:
            import_module(name if name.startswith("torch.") else f"paceline.parallel.{name}")


class AnyNumber(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which every tensor's value reads as 1, for code where no shape depends on it."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Answer reads of a value from a fake tensor."""
        if function is READ_NUMBER:
            return 1.0 if args[0].dtype.is_floating_point else 1
        return function(*args, **(kwargs or {}))


class FakeGroups(Groups):
    """Process groups of any size with this worker alone, where every call returns at once.

    torch sees a CPU: its engine is the same and needs no accelerator.
    """

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement, torch.device("cpu"), None)
        if placement.workers == 1:
            return
        store = fake_store()
        self._store = cast("SignedStore", store)
        with in_reality():
            dist.init_process_group(
                "fake", store=store, rank=placement.rank, world_size=placement.workers
            )

    def memory_bytes(self, device: torch.device) -> None:
        """Return None: fake tensors take no memory."""
        del device

    def mesh(self, layout: Layout) -> DeviceMesh:
        """Return the device mesh, whose ranks are real numbers."""
        with in_reality():
            return super().mesh(layout)

    def _created(
        self, ranks: Sequence[int], *, on_host: bool = False, opened: set[str] | None = None
    ) -> dist.ProcessGroup:
        del on_host, opened
        with in_reality():
            group: dist.ProcessGroup = dist.new_group(list(ranks))
            return group


def without_memory(model: nn.Module) -> nn.Module:
    """Replace a model's real tensors, such as weights read from files, with fake ones."""
    done: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in own_parameters(module).items():
            if parameter is not None and not isinstance(parameter, FakeTensor):
                if id(parameter) not in done:  # tied weights stay one parameter
                    done[id(parameter)] = nn.Parameter(
                        torch.empty_like(parameter.detach()), parameter.requires_grad
                    )
                own_parameters(module)[name] = done[id(parameter)]
        for name, buffer in own_buffers(module).items():
            if buffer is not None and not isinstance(buffer, FakeTensor):
                own_buffers(module)[name] = torch.empty_like(buffer)
    # It is in its place already; torch cannot move a fake tensor in place.
    model.to = lambda *_, **__: model  # type: ignore[method-assign]
    return model


@contextmanager
def replaced(owner: Any, name: str, stand_in: Any) -> Iterator[None]:
    """Replace an attribute of a module or class inside the block."""
    before = getattr(owner, name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        setattr(owner, name, before)
