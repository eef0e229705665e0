"""A worker's transfers: every call of a torch collective, recorded as it runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
import torch.distributed as dist

from paceline.comm.torch_internals import (
    operator_name,
    operator_schema,
    resolve_process_group,
    tree_leaves,
)
from paceline.specs import Layout, Transfer

NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"})
"""The namespaces of torch's communication operators."""

_DIMENSIONS = ("pipeline", "replicas", "shards", "tensor")
_SILENT = {
    "wait_tensor",
    "wait_tensors",
    "_wrap_tensor_autograd",
    "mesh_get_process_group",
    "check_for_nan",
}
"""Operators in these namespaces that send nothing."""


@dataclass(frozen=True)
class _Call:
    """How to read an operator's call."""

    operation: str
    tensors: int = 0
    """Index of the argument that holds the bytes."""
    each: Literal["as it is", "from all"] = "as it is"
    """Whether the argument is one worker's part of the gathered result."""


_CALLS = {
    "allreduce_": _Call("all-reduce"),
    "allreduce_coalesced_": _Call("all-reduce"),
    "all_reduce": _Call("all-reduce"),
    "all_reduce_": _Call("all-reduce"),
    "all_reduce_coalesced": _Call("all-reduce"),
    "all_reduce_coalesced_": _Call("all-reduce"),
    "reduce_": _Call("reduce"),
    "_allgather_base_": _Call("all-gather"),
    "allgather_": _Call("all-gather"),
    "allgather_coalesced_": _Call("all-gather"),
    "allgather_into_tensor_coalesced_": _Call("all-gather"),
    "all_gather_into_tensor": _Call("all-gather", each="from all"),
    "all_gather_into_tensor_out": _Call("all-gather", each="from all"),
    "all_gather_into_tensor_coalesced": _Call("all-gather", each="from all"),
    "gather_": _Call("gather"),
    "gather_into_tensor_": _Call("gather"),
    "_reduce_scatter_base_": _Call("reduce-scatter", 1),
    "reduce_scatter_": _Call("reduce-scatter", 1),
    "reduce_scatter_tensor_coalesced_": _Call("reduce-scatter", 1),
    "reduce_scatter_tensor": _Call("reduce-scatter"),
    "reduce_scatter_tensor_out": _Call("reduce-scatter"),
    "reduce_scatter_tensor_coalesced": _Call("reduce-scatter"),
    "scatter_": _Call("scatter", 1),
    "broadcast": _Call("broadcast"),
    "broadcast_": _Call("broadcast"),
    "alltoall_": _Call("all-to-all", 1),
    "alltoall_base_": _Call("all-to-all", 1),
    "all_to_all_single": _Call("all-to-all"),
    "shard_dim_alltoall": _Call("all-to-all"),
    "send": _Call("send"),
    "isend": _Call("send"),
    "recv_": _Call("receive"),
    "irecv": _Call("receive"),
    "barrier": _Call("barrier"),
    "monitored_barrier_": _Call("barrier"),
}


class TransferRecorder:
    """Records this worker's transfers, called from anywhere in torch."""

    def __init__(self, layout: Layout, rank: int, devices_per_node: int) -> None:
        self.counts: Counter[Transfer] = Counter()
        """Number of calls per transfer; the keys have a count of 1."""
        self._layout = layout
        self._rank = rank
        self._devices = devices_per_node
        self._places: dict[str, tuple[str, int, bool]] = {}

    def before(self) -> None:
        """Do nothing before an operator."""

    def after(self, function: Any, args: Sequence[Any], result: Any) -> None:
        """Record an operator if it communicates."""
        del result
        if function.namespace in NAMESPACES:
            self._note(function, args)

    def _note(self, function: Any, args: Sequence[Any]) -> None:
        name = operator_name(function)
        if name in _SILENT:
            return
        named = dict(zip(_argument_names(function), args, strict=False))
        group = _group(named)
        if name == "batch_p2p_ops":
            for what, peer, tensor in zip(
                named["op_list"], named["peer_list"], named["tensors"], strict=True
            ):
                operation = "send" if "send" in what else "receive"
                self._add(operation, self._between(group, peer), tensor.nbytes)
            return
        # Record an operator that a later torch adds under its own name.
        how = _CALLS.get(name, _Call(name))
        size = sum(
            each.nbytes for each in tree_leaves(args[how.tensors]) if isinstance(each, torch.Tensor)
        )
        peer = named.get("dst", named.get("src"))
        if how.operation in ("send", "receive") and peer is not None:
            self._add(how.operation, self._between(group, peer), size)
            return
        if how.each == "from all":
            size *= group.size()
        self._add(how.operation, self._among(group), 0 if how.operation == "barrier" else size)

    def _add(self, operation: str, where: tuple[str, int, bool], size: int) -> None:
        dimension, workers, inside_node = where
        self.counts[
            Transfer(
                operation=operation,
                dimension=dimension,
                workers=workers,
                inside_node=inside_node,
                bytes=size,
                count=1,
            )
        ] += 1

    def _among(self, group: dist.ProcessGroup) -> tuple[str, int, bool]:
        if group.group_name not in self._places:
            ranks = dist.get_process_group_ranks(group)
            self._places[group.group_name] = self._where(ranks)
        return self._places[group.group_name]

    def _between(self, group: dist.ProcessGroup, peer: int) -> tuple[str, int, bool]:
        return self._where([self._rank, dist.get_global_rank(group, peer)])

    def _where(self, ranks: Sequence[int]) -> tuple[str, int, bool]:
        """Return the dimensions in which ranks differ, their number, and if they share a node."""
        positions = [self._layout.position(rank) for rank in ranks]
        differ = [
            name
            for name, numbers in zip(_DIMENSIONS, zip(*positions, strict=True), strict=True)
            if len(set(numbers)) > 1
        ]
        nodes = {rank // self._devices for rank in ranks}
        return " x ".join(differ) or "itself", len(ranks), len(nodes) == 1


def listed(counts: Mapping[Transfer, int]) -> tuple[Transfer, ...]:
    """Return transfers with their counts, the largest total first."""
    found = (each.model_copy(update={"count": count}) for each, count in counts.items() if count)
    return tuple(
        sorted(found, key=lambda each: (-each.total_bytes, each.operation, each.dimension))
    )


@cache
def _argument_names(function: Any) -> tuple[str, ...]:
    return tuple(argument.name for argument in operator_schema(function).arguments)


def _group(named: Mapping[str, Any]) -> dist.ProcessGroup:
    if "process_group" in named:
        group: dist.ProcessGroup = dist.ProcessGroup.unbox(named["process_group"])
        return group
    given: Any = named["group_name"]
    return given if isinstance(given, dist.ProcessGroup) else resolve_process_group(given)
