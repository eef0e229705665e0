"""Matrix products among torch's operators, with their sizes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from paceline.comm.torch_internals import operator_name, operator_schema

aten = torch.ops.aten


@dataclass(frozen=True)
class Product:
    """Independent products of one size, for all samples passed."""

    rows: int
    inner: int
    columns: int
    repeats: int = 1
    reused: float = 1.0
    """Rows that share an input element."""
    attention: bool = False
    computed: float = 1.0
    """Fraction that is computed: one half if a causal mask skips the rest."""
    queries_per_key: int = 1
    """Query heads that share keys and values, in attention."""


def products_of(operator: Any, args: Sequence[Any], result: Any) -> tuple[Product, ...]:
    """Return the products of an operator call; empty for other operators."""
    find = _FINDERS.get(operator.overloadpacket)
    if find is not None:
        return find(args, result)
    if "scaled_dot_product" in operator_name(operator):
        return _attention(operator, args)
    return ()


_UNCOUNTED = (
    *("rnn", "lstm", "gru", "fft", "linalg", "cdist", "pdist", "grid_sampler", "ctc_loss"),
    *("_mm", "addmm", "addbmm", "addmv", "gemm", "matmul", "mkldnn_linear", "trilinear"),
    *("conv1d", "conv2d", "conv3d", "conv_", "convolution", "attention", "encoder_layer"),
    *("cholesky", "_solve", "matrix_exp"),
)
"""Parts of the names of torch's operators that compute much, besides the products above."""
_BACKWARD_OF_COUNTED = ("convolution_backward", "scaled_dot_product")
"""Parts of the names of operators of backward whose forward is counted."""


def is_uncounted(operator: Any) -> bool:
    """Return whether an operator may compute much and has no FLOP count: custom operators,
    and torch's own that are not matrix products."""
    if operator.namespace != "aten":
        return operator.namespace not in ("prim", "prims")
    if operator.overloadpacket in _FINDERS:
        return False
    name = operator_name(operator)
    if any(part in name for part in _BACKWARD_OF_COUNTED):
        return False
    return name in ("mv", "dot", "vdot") or any(part in name for part in _UNCOUNTED)


def _pair(left: torch.Tensor, right: torch.Tensor) -> tuple[Product, ...]:
    *many, rows, inner = left.shape
    return (Product(rows, inner, right.shape[-1], repeats=math.prod(many)),)


def _convolution(args: Sequence[Any], result: torch.Tensor) -> tuple[Product, ...]:
    """Return one product: a row for every output pixel, a column for every output channel."""
    inputs, weight, transposed, groups = args[0], args[1], args[6], args[8]
    outside = inputs if transposed else result  # the kernel is applied at each of its pixels
    pixels = outside.shape[0] * math.prod(outside.shape[2:])
    kernel = math.prod(weight.shape[1:])
    reused = max(1.0, pixels * kernel * groups / inputs.numel())
    return (Product(pixels, kernel, weight.shape[0] // groups, repeats=groups, reused=reused),)


def _attention(operator: Any, args: Sequence[Any]) -> tuple[Product, ...]:
    query, key, value = args[:3]
    *many, rows, width = query.shape
    pairs = key.shape[-2]
    names = [each.name for each in operator_schema(operator).arguments]
    causal = "is_causal" in names and len(args) > (at := names.index("is_causal")) and args[at]
    computed = 0.5 if causal else 1.0
    repeats = math.prod(many)
    grouped = max(1, query.shape[-3] // key.shape[-3]) if query.ndim > 3 else 1
    scores = Product(
        rows, width, pairs, repeats, attention=True, computed=computed, queries_per_key=grouped
    )
    return scores, replace(scores, inner=pairs, columns=value.shape[-1])


_FINDERS: dict[Any, Callable[[Sequence[Any], Any], tuple[Product, ...]]] = {
    aten.mm: lambda args, _: _pair(args[0], args[1]),
    aten.addmm: lambda args, _: _pair(args[1], args[2]),
    aten.bmm: lambda args, _: _pair(args[0], args[1]),
    aten.baddbmm: lambda args, _: _pair(args[1], args[2]),
    aten.convolution: _convolution,
}
