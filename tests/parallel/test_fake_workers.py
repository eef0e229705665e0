"""The private parts of torch that dry runs rest on are what they were."""

import inspect
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp._fully_shard import _fsdp_common
from torch.distributed.fsdp._fully_shard import _fsdp_param as fsdp_param
from torch.distributed.pipelining._utils import InferenceMode

from paceline.comm.torch_internals import current_backward, pipeline_warmup
from paceline.parallel.dry_run.fake_workers import (
    FakeGroups,
    in_reality,
    pretending,
    replaced,
)
from paceline.parallel.dry_run.torch_stand_ins import Chunks, agree_at_once
from paceline.parallel.dry_run.transfers import _CALLS, _SILENT, NAMESPACES
from paceline.specs import Layout, Placement

FSDP: Any = fsdp_param


@pytest.mark.parametrize("length", [1, 5, 8, 9])
@pytest.mark.parametrize("pieces", [1, 3, 4, 12])
def test_pieces_of_shards_are_those_of_fsdp(length: int, pieces: int) -> None:
    tensor = torch.arange(length * 3).view(length, 3)
    theirs = _fsdp_common._chunk_with_empty(tensor, pieces, dim=0)
    ours = Chunks(tensor, pieces, dim=0)
    for number, piece in enumerate(theirs):
        assert torch.equal(ours[number], piece)


def test_what_stands_in_is_called_as_what_it_stands_in_for() -> None:
    assert [*inspect.signature(FSDP._chunk_with_empty).parameters] == [
        *inspect.signature(Chunks).parameters
    ]
    theirs = inspect.signature(getattr(*pipeline_warmup())).parameters
    assert [*theirs][1:3] == [*inspect.signature(agree_at_once).parameters][1:3]
    assert len(theirs) == 4
    assert {"STATIC", "DYNAMIC"} <= set(InferenceMode.__members__)


def test_tensors_have_no_memory_in_the_block_and_have_it_outside() -> None:
    with pretending(Layout()):
        assert torch.empty(1 << 50).shape == (1 << 50,)
        with in_reality():
            assert torch.ones(3).sum().item() == 3
    assert torch.ones(3).sum().item() == 3


def test_what_was_replaced_comes_back() -> None:
    before = getattr(*pipeline_warmup()), FSDP._chunk_with_empty
    with pretending(Layout(pipeline=2, shards=2)):
        assert getattr(*pipeline_warmup()) is not before[0]
    with pytest.raises(ZeroDivisionError), replaced(nn, "Linear", None):
        _ = 1 / 0
    assert (getattr(*pipeline_warmup()), FSDP._chunk_with_empty) == before
    assert nn.Linear is not None


def test_groups_of_any_size() -> None:
    layout = Layout(pipeline=2, replicas=5, shards=10, tensor=8)
    groups = FakeGroups(Placement(411, layout.workers, 3, 8, "node"))
    try:
        mesh = groups.mesh(layout)
        assert dict(zip(mesh.mesh_dim_names or (), mesh.get_coordinate() or (), strict=True)) == {
            "pipeline": 1,
            "replicas": 0,
            "shards": 1,
            "tensor": 3,
        }
        assert dist.get_process_group_ranks(mesh.get_group("pipeline")) == [11, 411]
        assert groups.sum(torch.ones(2)).tolist() == [1, 1]
    finally:
        groups.leave()
    assert not dist.is_initialized()


def test_a_backward_has_a_number() -> None:
    seen: list[int | None] = []
    value = torch.ones(2, requires_grad=True)
    value.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
        lambda _: seen.append(current_backward())
    )
    assert current_backward() is None
    torch.autograd.backward(value.sum())
    assert seen[0] is not None


def test_every_operator_that_communicates_is_known() -> None:
    """One that torch adds is noted by its own name; then say here how to read it."""
    schemas: list[Any] = torch._C._jit_get_all_schemas()
    names = (schema.name.split("::") for schema in schemas)
    found = {name for space, name in names if space in NAMESPACES}
    assert found - _SILENT - {"batch_p2p_ops", "recv_any_source_"} <= set(_CALLS)
