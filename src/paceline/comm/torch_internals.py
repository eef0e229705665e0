"""Every private torch symbol that Paceline uses, under a plain name, with the reason.

No other module in `src` uses private parts of torch. `tests/comm/test_torch_internals.py` checks
that each symbol exists and behaves as expected: when a torch release changes one, that test names
it. Modules that load slowly (DTensor, FSDP, pipelining) are imported on use.
"""

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _resolve_process_group as resolve_process_group
from torch._C._profiler import _ExperimentalConfig as ProfilerConfig
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.nn.modules import transformer
from torch.nn.modules.batchnorm import _BatchNorm as BatchNormLayer
from torch.nn.modules.batchnorm import _NormBase as NormLayer
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._python_dispatch import _disable_current_modes as disabled_dispatch_modes
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

if TYPE_CHECKING:  # torch.distributed defines these conditionally, which type checkers do not see
    from torch._C._distributed_c10d import GradBucket, PrefixStore, Store, TCPStore
else:
    from torch.distributed import GradBucket, PrefixStore, Store, TCPStore

__all__ = [
    "BatchNormLayer",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "GradBucket",
    "HigherOrderOperator",
    "NormLayer",
    "OpOverload",
    "PrefixStore",
    "ProfilerConfig",
    "Store",
    "TCPStore",
    "TorchDispatchMode",
    "UnsupportedOperatorException",
    "disabled_dispatch_modes",
    "is_traceable_wrapper_subclass_type",
    "resolve_process_group",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "unset_fake_temporarily",
]

# One call for many tensors, as in torch's own optimizers: a loop launches a kernel per tensor.
foreach_add_ = torch._foreach_add_
foreach_addcmul_ = torch._foreach_addcmul_
foreach_copy_ = torch._foreach_copy_
foreach_div = torch._foreach_div
foreach_div_ = torch._foreach_div_
foreach_lerp_ = torch._foreach_lerp_
foreach_mul_ = torch._foreach_mul_
foreach_norm = torch._foreach_norm
foreach_sqrt_ = torch._foreach_sqrt_
foreach_sub_ = torch._foreach_sub_

check_finite_ = torch._amp_foreach_non_finite_check_and_unscale_
"""GradScaler's operator `(tensors, found, factor)`: one pass over tensors of one type, which it
multiplies by `factor`; it sets `found` to 1 if a value is not finite."""

make_wrapper_subclass = torch.Tensor._make_wrapper_subclass
"""Creates a tensor without memory of a subclass that computes by `__torch_dispatch__`."""

FLASH_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention
EFFICIENT_ATTENTION = torch.ops.aten._scaled_dot_product_efficient_attention
CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""The operators behind `F.scaled_dot_product_attention`, for FLOP counters and recomputation."""
READ_NUMBER = torch.ops.aten._local_scalar_dense.default
"""The operator behind `tensor.item()`, which has no answer for a tensor without memory."""

compile_kernel = torch.cuda._compile_kernel
"""Compiles CUDA source; the result launches one thread when it is called."""

CAUSAL_MASK_CHECK = (transformer, "_detect_is_causal_mask")
"""The function with which torch's transformer reads a mask's values. A dry run replaces it."""


def abort_process_groups() -> None:
    """Abort the collectives of all process groups, the newest first; from any thread.

    Aborting a group does not release those that were split from it. torch's own function also
    forgets the groups, and the next collective of another thread then raises ValueError, as in a
    program without groups.
    """
    groups = list(dist.distributed_c10d._world.pg_map)
    # NCCL's aborts of several communicators can wait for each other outside such a block.
    together = [each for each in map(_nccl_backend, groups[:1]) if each is not None]
    for backend in together:
        backend._group_start()
    for group in reversed(groups):
        group.abort()
    for backend in together:
        backend._group_end()


def _nccl_backend(group: dist.ProcessGroup) -> Any | None:
    if not dist.is_nccl_available() or dist.get_backend(group) != "nccl":
        return None
    return group._get_backend(torch.device("cuda"))


def in_bad_fork(device_type: str) -> bool:
    """Return whether devices of this type cannot be used, because the parent of this process had
    started their runtime before the fork."""
    asks = getattr(torch.get_device_module(device_type), "_is_in_bad_fork", None)
    return asks is not None and bool(asks())


def created_group(name: str, ranks: list[int], backend: str | None) -> dist.ProcessGroup:
    """Create a group of these workers, which alone call it, and name it; torch would name it by the
    number of groups that a worker has, which differs between workers."""
    c10d: Any = dist.distributed_c10d
    everybody = c10d._get_default_group()
    usual, store = c10d._world.pg_map[everybody]
    chosen, place = dist.Backend(backend or usual), ranks.index(dist.get_rank())
    timeout, device = c10d._get_default_timeout(chosen), everybody.bound_device_id
    group: dist.ProcessGroup
    group, _ = c10d._new_process_group_helper(
        *(len(ranks), place, ranks, chosen, store, name), timeout=timeout, device_id=device
    )
    c10d._world.pg_group_ranks[group] = {rank: number for number, rank in enumerate(ranks)}
    return group


def reset_group_count() -> None:
    """Number process groups from 0 again, as `destroy_process_group` does.

    If creating the first group fails, torch still counts it. Later groups would then wait for the
    other workers under names that those workers do not use.
    """
    if not dist.is_initialized():
        dist.distributed_c10d._world.group_count = 0


def clear_sharding_cache() -> None:
    """Clear DTensor's cache of device meshes.

    A later generation's mesh of the same size compares equal, so DTensor would use the old mesh's
    groups.
    """
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache  # noqa: PLC0415

        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]


def current_backward() -> int | None:
    """Return the ID of the backward pass that runs in this thread, or None."""
    number: int = torch._C._current_graph_task_id()
    return None if number == -1 else number


def profiler_runs() -> bool:
    """Return whether a torch profiler is already running; torch supports only one."""
    running: bool = torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
    return running


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return the module's own parameters, which may be replaced in place."""
    return module._parameters


def own_buffers(module: nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the module's own buffers, which may be replaced in place."""
    return module._buffers


def check_input_dim(layer: BatchNormLayer, values: torch.Tensor) -> None:
    """Raise an error if a batch norm layer does not accept the input's number of dimensions."""
    layer._check_input_dim(values)  # type: ignore[no-untyped-call]


def sparse_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return a sparse tensor's values without coalescing it, which `values()` requires."""
    return tensor._values()


def storage_id(storage: torch.UntypedStorage) -> int:
    """Return a number that identifies a storage, even one without memory."""
    number: int = storage._cdata
    return number


def operator_name(operator: Any) -> str:
    """Return an operator's name without namespace and overload."""
    name: str = operator._opname
    return name


def operator_schema(operator: Any) -> Any:
    """Return an operator's schema: its arguments and results."""
    return operator._schema


def found_inf(scaler: Any, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return a GradScaler's overflow flags, one per device."""
    return list(scaler._found_inf_per_device(optimizer).values())


def scale_tensors(scaler: Any) -> list[torch.Tensor]:
    """Return the tensors that a GradScaler changes when it has stepped."""
    return [scaler._scale, scaler._growth_tracker]


def fuse(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimizer that has a fused kernel use it from now on."""
    for group in optimizer.param_groups:
        group["fused"], group["foreach"] = True, False
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]


def can_skip(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer skips its update on the device, as GradScaler wants."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def step_unless(found: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Update the weights, unless `found` is 1 on the device; the host does not wait for it.

    The optimizer `can_skip`; the attributes are those that GradScaler gives it.
    """
    optimizer.grad_scale, optimizer.found_inf = None, found  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]


def rebuild_buckets(model: nn.parallel.DistributedDataParallel) -> bool:
    """Rebuild DDP's buckets in the order of gradient arrival; return whether a rebuild was due."""
    due: bool = model.reducer._rebuild_buckets()
    return due


def fake_store() -> Any:
    """Return the store of the fake backend; loading its module registers that backend."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    return FakeStore()


def fsdp_chunking() -> tuple[Any, str]:
    """Return the location of FSDP2's function that splits a parameter. A dry run replaces it."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param  # noqa: PLC0415

    return _fsdp_param, "_chunk_with_empty"


def fsdp_parameters(model: nn.Module) -> Iterator[Any]:
    """Yield FSDP2's internal records of the parameters that it shards."""
    for module in model.modules():
        if hasattr(module, "_get_fsdp_state"):
            state: Any = module._get_fsdp_state()  # type: ignore[operator]
            for group in state._fsdp_param_groups:
                yield from group.fsdp_params


def sharded_together(module: Any) -> list[nn.Parameter]:
    """Return the parameters that FSDP2 reduces together for a module, in their order."""
    groups = module._get_fsdp_state()._fsdp_param_groups
    return [each.sharded_param for group in groups for each in group.fsdp_params]


def unsharded_gradients(parameter: Any) -> Iterator[torch.Tensor]:
    """Yield the gradients of an FSDP2 parameter that are not yet reduced."""
    unsharded = getattr(parameter, "_unsharded_param", None)
    own = None if unsharded is None else unsharded.grad
    for gradient in (parameter.unsharded_accumulated_grad, own):
        if gradient is not None:
            yield gradient


def note_gradients_of_shards(model: nn.Module, note: Callable[[nn.Parameter], None]) -> None:
    """Call `note` with each FSDP2 parameter for which backward computes a gradient on this worker.

    Afterwards nothing tells them from parameters whose gradients only other workers computed.
    """

    def noting(group: Any, post_backward: Callable[..., None]) -> Callable[..., None]:
        def noted(*arguments: Any) -> None:
            for each in group.fsdp_params:
                if any(True for _ in unsharded_gradients(each)):
                    note(each.sharded_param)
            post_backward(*arguments)

        return noted

    for module in model.modules():
        if hasattr(module, "_get_fsdp_state"):
            state: Any = module._get_fsdp_state()  # type: ignore[operator]
            for group in state._fsdp_param_groups:
                group.post_backward = noting(group, group.post_backward)


def pipeline_warmup() -> tuple[Any, str]:
    """Return the method with which pipeline stages agree on their shapes. A dry run replaces it."""
    from torch.distributed.pipelining import schedules  # noqa: PLC0415

    schedule = schedules._PipelineSchedule
    until_2_14 = "_warmup_p2p"
    return schedule, (
        until_2_14 if hasattr(schedule, until_2_14) else "_initialize_pipeline_distributed_state"
    )


def use_static_shapes(stage: Any, *, has_backward: bool) -> None:
    """Tell a pipeline stage that its shapes are known; fail if they are not."""
    from torch.distributed.pipelining._utils import InferenceMode  # noqa: PLC0415

    assert not InferenceMode.needs_dynamic(stage._user_meta, has_backward)
    stage._inference_mode = InferenceMode.STATIC
