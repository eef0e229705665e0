"""Each private symbol of torch that Paceline uses exists and does what Paceline relies on.

A failure names the symbol that a torch release has changed; fix it in `comm/torch_internals.py`.
"""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from paceline.comm import torch_internals as internals

SOURCES = Path(internals.__file__).parents[1]


def _foreach() -> None:
    values = [torch.tensor([3.0, 4.0]), torch.tensor([1.0])]
    assert [float(norm) for norm in internals.foreach_norm(values)] == [5.0, 1.0]
    internals.foreach_mul_(values, 2.0)
    internals.foreach_add_(values, values, alpha=0.5)
    internals.foreach_sub_(values, [torch.ones(2), torch.ones(1)])
    assert [each.tolist() for each in values] == [[8.0, 11.0], [2.0]]
    others = [torch.empty(2, dtype=torch.float64), torch.empty(1)]
    internals.foreach_copy_(others, values)
    assert others[0].tolist() == [8.0, 11.0]


def _check_finite() -> None:
    found, factor = torch.zeros(()), torch.ones(())
    values = [torch.tensor([-0.0, 1e-45, 3e38]), torch.ones(1)]
    internals.check_finite_(values, found, factor)
    assert (found.item(), values[0].tolist()) == (0.0, torch.tensor([-0.0, 1e-45, 3e38]).tolist())
    internals.check_finite_([torch.tensor([1.0, -torch.inf])], found, factor)
    assert found.item() == 1.0


def _compile_kernel() -> None:
    """Only its form: there is no CUDA here."""
    assert list(inspect.signature(internals.compile_kernel).parameters)[:2] == [
        *("kernel_source", "kernel_name")
    ]


class _Wrapper(torch.Tensor):
    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError


def _wrapper() -> None:
    made = internals.make_wrapper_subclass(_Wrapper, (2, 3), dtype=torch.float16)
    assert type(made) is _Wrapper
    assert (made.shape, made.dtype) == ((2, 3), torch.float16)
    assert not internals.is_traceable_wrapper_subclass_type(torch.Tensor)


class _Seen(internals.TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[Any] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.operators.append(function)
        return function(*args, **(kwargs or {}))


def _operators() -> None:
    query = torch.randn(1, 1, 4, 8)
    with _Seen() as seen:
        nn.functional.scaled_dot_product_attention(query, query, query)
        query.sum().item()
    assert all(isinstance(each, internals.OpOverload) for each in seen.operators)
    assert internals.CPU_ATTENTION.default in seen.operators
    assert internals.READ_NUMBER in seen.operators
    attention = internals.CPU_ATTENTION.default
    assert internals.operator_name(attention) == "_scaled_dot_product_flash_attention_for_cpu"
    names = [each.name for each in internals.operator_schema(attention).arguments]
    assert names[:3] == ["query", "key", "value"]
    assert internals.FLASH_ATTENTION.default is not internals.EFFICIENT_ATTENTION.default
    with _Seen() as seen, internals.disabled_dispatch_modes():
        torch.ones(1)
    assert seen.operators == []


def _trees() -> None:
    tree = {"a": [1, torch.ones(1)], "b": (2,)}
    assert len(internals.tree_leaves(tree)) == 3
    assert internals.tree_map(lambda leaf: 0, tree) == {"a": [0, 0], "b": (0,)}
    assert internals.tree_map_only(int, lambda leaf: -leaf, {"a": 1, "b": "c"}) == {
        "a": -1,
        "b": "c",
    }


def _modules() -> None:
    layer = nn.BatchNorm1d(3)
    assert isinstance(layer, internals.BatchNormLayer)
    assert issubclass(internals.BatchNormLayer, internals.NormLayer)
    assert isinstance(nn.InstanceNorm1d(3), internals.NormLayer)
    assert set(internals.own_parameters(layer)) == {"weight", "bias"}
    internals.own_parameters(layer)["weight"] = replaced = nn.Parameter(torch.zeros(3))
    assert layer.weight is replaced
    assert "running_mean" in internals.own_buffers(layer)
    internals.check_input_dim(layer, torch.ones(2, 3))
    with pytest.raises(ValueError, match="expected"):
        internals.check_input_dim(layer, torch.ones(2, 3, 4, 5))


def _storages() -> None:
    one, other = torch.ones(2), torch.ones(2, device="meta")
    ids = [internals.storage_id(each.untyped_storage()) for each in (one, one[1:], other)]
    assert ids[0] == ids[1] != ids[2]
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.tensor([1.0, 2.0]), (2,))
    assert internals.sparse_values(sparse).tolist() == [1.0, 2.0]


def _backwards() -> None:
    seen: list[int | None] = []
    leaf = torch.ones(1, requires_grad=True)
    leaf.register_hook(  # type: ignore[no-untyped-call]
        lambda _: seen.append(internals.current_backward())
    )
    torch.autograd.backward(leaf * 2)
    assert internals.current_backward() is None
    assert seen[0] is not None


def _overflow() -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    torch.autograd.backward(scaler.scale(parameter.sum() * torch.inf))
    scaler.unscale_(optimizer)
    assert [float(each) for each in internals.found_inf(scaler, optimizer)] == [1.0]


def _profilers() -> None:
    assert not internals.profiler_runs()
    with torch.profiler.profile():
        assert internals.profiler_runs()
    config = internals.ProfilerConfig(profile_all_threads=True)
    with torch.profiler.profile(experimental_config=config) as profiler:
        torch.ones(1).add(1)
    assert any(event.key == "aten::add" for event in profiler.key_averages())


def _fakes() -> None:
    with internals.FakeTensorMode():
        made = torch.ones(2)
        assert isinstance(made, internals.FakeTensor)
        with pytest.raises(internals.DataDependentOutputException):
            made.sum().item()
        with pytest.raises(internals.DynamicOutputShapeException):
            made.nonzero()
        with internals.unset_fake_temporarily():
            assert not isinstance(torch.ones(2), internals.FakeTensor)
    assert issubclass(internals.UnsupportedOperatorException, RuntimeError)


def _unreduced(state: object, bucket: internals.GradBucket) -> torch.futures.Future[torch.Tensor]:
    del state
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _fake_groups() -> None:
    """Includes DDP's buckets, FSDP2's records and the names that torch finds groups by."""
    dist.init_process_group("fake", store=internals.fake_store(), rank=0, world_size=4)
    try:
        world = dist.group.WORLD
        assert world is not None
        assert internals.resolve_process_group(world.group_name) is world
        ddp = nn.parallel.DistributedDataParallel(nn.Linear(2, 2), init_sync=False)
        ddp.register_comm_hook(None, _unreduced)
        ddp(torch.ones(1, 2)).sum().backward()
        assert internals.rebuild_buckets(ddp)
        from torch.distributed.fsdp import fully_shard

        model = nn.Linear(4, 4)
        mesh = init_device_mesh("cpu", (4,))
        fully_shard(model, mesh=mesh)
        assert len(list(internals.fsdp_parameters(model))) == 2
        for parameter in internals.fsdp_parameters(model):
            assert not list(internals.unsharded_gradients(parameter))
        noted: list[nn.Parameter] = []
        internals.note_gradients_of_shards(model, noted.append)
        model.bias.requires_grad_(False)
        model(torch.ones(1, 4)).sum().backward()
        assert [each is model.weight for each in noted] == [True]
        internals.clear_sharding_cache()
    finally:
        dist.destroy_process_group()
    world_of = dist.distributed_c10d._world
    world_of.group_count = 3
    internals.reset_group_count()
    assert world_of.group_count == 0


def _replaced_functions() -> None:
    chunk_with_empty, name = internals.fsdp_chunking()
    assert list(inspect.signature(getattr(chunk_with_empty, name)).parameters) == [
        "tensor", "num_chunks", "dim",
    ]  # fmt: skip
    schedule, name = internals.pipeline_warmup()
    *known, _ = inspect.signature(getattr(schedule, name)).parameters
    assert known == ["self", "stages", "has_backward"]
    transformer, name = internals.CAUSAL_MASK_CHECK
    assert callable(getattr(transformer, name))


def _static_shapes() -> None:
    from torch.distributed.pipelining._utils import InferenceMode

    assert InferenceMode.STATIC
    assert list(inspect.signature(InferenceMode.needs_dynamic).parameters)[-1].endswith(
        "has_backward"
    )


def _aborts() -> None:
    assert isinstance(dist.distributed_c10d._world.pg_map, dict)
    assert callable(dist.ProcessGroup.abort)
    assert callable(dist.ProcessGroup._get_backend)
    assert issubclass(internals.TCPStore, internals.Store)
    assert issubclass(internals.PrefixStore, internals.Store)
    assert hasattr(internals.GradBucket, "buffer")


def _forks() -> None:
    assert hasattr(torch.cuda, "_is_in_bad_fork")
    assert hasattr(torch.xpu, "_is_in_bad_fork")
    assert not internals.in_bad_fork("cuda")


BEHAVIOR: dict[str, Callable[[], None]] = {
    "torch._foreach_*": _foreach,
    "torch._amp_foreach_non_finite_check_and_unscale_": _check_finite,
    "torch.cuda._compile_kernel": _compile_kernel,
    "Tensor._make_wrapper_subclass": _wrapper,
    "aten._scaled_dot_product_*, OpOverload._opname, ._schema, _disable_current_modes": _operators,
    "torch.utils._pytree": _trees,
    "_BatchNorm, _NormBase, Module._parameters, ._buffers": _modules,
    "UntypedStorage._cdata, Tensor._values": _storages,
    "torch._C._current_graph_task_id": _backwards,
    "GradScaler._found_inf_per_device": _overflow,
    "autograd._profiler_enabled, _ExperimentalConfig": _profilers,
    "torch._subclasses.fake_tensor": _fakes,
    "fake_pg, Reducer._rebuild_buckets, _get_fsdp_state, _world.group_count": _fake_groups,
    "_chunk_with_empty, _warmup_p2p, _detect_is_causal_mask": _replaced_functions,
    "pipelining._utils.InferenceMode": _static_shapes,
    "_world.pg_map, ProcessGroup._get_backend, torch._C._distributed_c10d": _aborts,
    "torch.cuda._is_in_bad_fork, torch.xpu._is_in_bad_fork": _forks,
}


@pytest.mark.parametrize("symbol", BEHAVIOR)
def test_torch_still_does_what_is_relied_on(symbol: str) -> None:
    BEHAVIOR[symbol]()


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _private_access(path: Path, own: set[str]) -> list[str]:
    """Private modules and names of torch that a file imports, and private attributes that it reads
    and that no code of ours defines."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            parts = [*(node.module or "").split("."), *(each.name for each in node.names)]
            found += [f"{path}:{node.lineno}: {part}" for part in parts if _private(part)]
        elif isinstance(node, ast.Attribute) and _private(node.attr) and node.attr not in own:
            found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return found


PYTHONS_OWN = {"_asdict", "_replace", "_exit", "_strip_protocol", "_fields", "_getframe"}


def test_nothing_else_reaches_private_parts_of_torch() -> None:
    paths = [each for each in SOURCES.rglob("*.py") if each.name != "torch_internals.py"]
    own = set(PYTHONS_OWN)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.add(node.attr)
            elif isinstance(node, ast.AnnAssign):
                own.add(ast.unparse(node.target).split(".")[-1])
    assert not [line for path in paths for line in _private_access(path, own)]
