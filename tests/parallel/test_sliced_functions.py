"""Functions of sliced values give what they give of whole ones, and so do their gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn import functional as F

from paceline.parallel.slices.functions import COMPUTED_IN_SLICES
from paceline.parallel.slices.sliced_tensors import everything_whole
from paceline.parallel.slices.sliced_values import SlicedValues
from parallel.sliced_ranks import difference, workers
from ranks import run_ranks

pytestmark = pytest.mark.slow

BATCH, LENGTH = 4, 6
Call = Callable[[torch.Tensor], Any]


def like(value: torch.Tensor) -> torch.Tensor:
    """A whole value that a sliced one meets."""
    return torch.linspace(0.5, 1.5, value.numel()).view(value.shape)


def weight(value: torch.Tensor, outputs: int = 6) -> torch.Tensor:
    return torch.linspace(-1, 1, outputs * value.shape[-1]).view(outputs, -1)


def positive(value: torch.Tensor) -> torch.Tensor:
    return value * value + 0.5


def pairs(value: torch.Tensor) -> torch.Tensor:
    return torch.stack([value, like(value)], dim=-1)


IN_SLICES: dict[str, Call] = {
    # views
    "view": lambda x: x.view(BATCH, LENGTH, -1, 1),
    "view_as": lambda x: x.view_as(like(x)),
    "reshape": lambda x: [x.reshape(-1, x.shape[-1]), x.reshape(BATCH, 2, 3, -1), x.reshape(-1)],
    "reshape_as": lambda x: x.transpose(0, 1).reshape_as(like(x)),
    "flatten": lambda x: [x.flatten(0, 1), x.flatten(1)],
    "unflatten": lambda x: [torch.unflatten(x, 0, (2, 2)), torch.unflatten(x, 1, (2, 3))],
    "transpose": lambda x: x.transpose(1, 2) * 2,
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "swapdims": lambda x: x.swapdims(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(1, -1),
    "t": lambda x: x[0].t(),
    "T": lambda x: x[0].T,
    "mT": lambda x: x.mT,
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "expand": lambda x: x[:, :, None].expand(BATCH, LENGTH, 2, -1),
    "expand_as": lambda x: x[:1].expand_as(like(x)),
    "chunk": lambda x: [x.chunk(2, dim=-1)[1], x.chunk(3, dim=1)[0]],
    "split": lambda x: torch.split(x, [1, x.shape[-1] - 1], dim=-1),
    "split_with_sizes": lambda x: x.split_with_sizes([2, 4], dim=1)[1],
    "tensor_split": lambda x: x.tensor_split(3, dim=-1),
    "unbind": lambda x: [x.unbind(1)[2], x.unbind(0)[0]],
    "narrow": lambda x: x.narrow(1, 1, 3),
    "select": lambda x: x.select(2, 1),
    "__getitem__": lambda x: [x[:, 0], x[:, -1], x[..., 1:], x[1], x[:, ::2], x[:, None]],
    "contiguous": lambda x: x.transpose(0, 1).contiguous(),
    "clone": lambda x: x.clone(),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1),
    "cat": lambda x: [torch.cat([x, like(x)], dim=dim) for dim in range(3)],
    "concat": lambda x: torch.concat([like(x), x], dim=1),
    "stack": lambda x: torch.stack([x, like(x)], dim=2),
    "view_as_complex": lambda x: torch.view_as_complex(pairs(x)).abs(),
    "view_as_real": lambda x: torch.view_as_real(torch.view_as_complex(pairs(x)) * 1j),
    # one element at a time
    "add": lambda x: [x + like(x), x + like(x)[0, 0], 1 + x],
    "sub": lambda x: x - like(x),
    "mul": lambda x: x * like(x)[:, :1],
    "div": lambda x: [x / like(x), like(x) / positive(x)],
    "neg": lambda x: -x,
    "abs": abs,
    "pow": lambda x: x**2,
    "square": lambda x: x.square(),
    "sqrt": lambda x: positive(x).sqrt(),
    "rsqrt": lambda x: positive(x).rsqrt(),
    "exp": lambda x: x.exp(),
    "log": lambda x: positive(x).log(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "__rsub__": lambda x: 1 - x,
    "__rdiv__": lambda x: 1 / positive(x),
    "maximum": lambda x: torch.maximum(x, like(x)),
    "minimum": lambda x: torch.minimum(x, like(x)),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "where": lambda x: [torch.where(like(x) > 1, x, 0.0), x.where(x > 0, like(x))],
    "masked_fill": lambda x: x.masked_fill(like(x)[0, 0] > 1, -1.0),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "relu": lambda x: [F.relu(x), F.relu(x * 1, inplace=True)],
    "gelu": lambda x: [F.gelu(x), F.gelu(x, approximate="tanh")],
    "silu": F.silu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "mish": F.mish,
    "lt": lambda x: x < like(x),
    "le": lambda x: x <= 0,
    "gt": lambda x: x > like(x),
    "ge": lambda x: x >= 0,
    "eq": lambda x: x.eq(like(x)),
    "ne": lambda x: x.ne(0),
    "__eq__": lambda x: x == like(x),
    "__ne__": lambda x: x != like(x),
    "__and__": lambda x: (x > 0) & (like(x) > 1),
    "__or__": lambda x: (x > 0) | (like(x) > 1),
    "__invert__": lambda x: ~(x > 0),
    "logical_and": lambda x: torch.logical_and(x > 0, like(x) > 1),
    "logical_or": lambda x: torch.logical_or(x > 0, like(x) > 1),
    "logical_not": lambda x: torch.logical_not(x > 0),
    "to": lambda x: x.to(torch.float64),
    "type": lambda x: x.type(torch.float64),
    "type_as": lambda x: x.type_as(like(x).double()),
    "float": lambda x: x.double().float(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "double": lambda x: x.double(),
    "zeros_like": lambda x: x + torch.zeros_like(x),
    "ones_like": lambda x: x * torch.ones_like(x),
    "full_like": lambda x: x * torch.full_like(x, 2.0),
    # products
    "matmul": lambda x: [x @ weight(x).T, x.mT @ x, x @ like(x).mT],
    "mm": lambda x: torch.mm(x[0], weight(x).T),
    "bmm": lambda x: [torch.bmm(x, x.mT), torch.bmm(x.mT, like(x))],
    "baddbmm": lambda x: torch.baddbmm(torch.ones(BATCH, LENGTH, LENGTH), x, x.mT),
    "addmm": lambda x: torch.addmm(torch.ones(6), x[0], weight(x).T),
    "einsum": lambda x: [
        torch.einsum("btc,bsc->bts", x, like(x)),
        torch.einsum("btc,oc->bto", x, weight(x)),
    ],
    "linear": lambda x: [F.linear(x, weight(x)), F.linear(x, weight(x), torch.ones(6))],
    # along dimensions
    "sum": lambda x: [x.sum(), x.sum(dim=1), x.sum(dim=-1, keepdim=True) * x],
    "mean": lambda x: [x.mean(), x.mean(dim=1), x.mean(dim=-1, keepdim=True) * x, x.mean((0, 1))],
    "amax": lambda x: [x.amax(dim=-1), x.amax(dim=(0, 1))],
    "amin": lambda x: x.amin(dim=1),
    "softmax": lambda x: [x.softmax(dim=-1), F.softmax(x, dim=1)],
    "log_softmax": lambda x: [x.log_softmax(dim=-1), F.log_softmax(x, dim=1)],
    "logsumexp": lambda x: [x.logsumexp(dim=-1), x.logsumexp(dim=1)],
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], like(x)[0, 0], like(x)[0, 1]),
    "rms_norm": lambda x: [F.rms_norm(x, x.shape[-1:]), F.rms_norm(x, x.shape[-1:], like(x)[0, 0])],
}


def words(value: torch.Tensor) -> torch.Tensor:
    """Targets of which some do not count."""
    numbers = torch.arange(BATCH * LENGTH).view(BATCH, LENGTH) % value.shape[-1]
    return numbers.masked_fill(torch.arange(LENGTH) > 3, -100)


def changed(value: torch.Tensor) -> torch.Tensor:
    value = value * 1
    value[:, 0] = 0
    value += like(value)
    value.clamp_(max=1)
    return value.cumsum_(-1)


def put_into_whole(value: torch.Tensor) -> torch.Tensor:
    whole = torch.zeros(value.shape)
    whole[:, 1:] = value[:, 1:]
    whole += value
    return whole


WHOLE: dict[str, Call] = {
    "along the slices": lambda x: [x.cumsum(-1), x.sort(-1)[0], x.flip(-1), x.roll(1, 1)],
    "convolution": lambda x: F.conv1d(x, torch.ones(3, LENGTH, 2)),
    "norms of groups": lambda x: [F.group_norm(x.mT, 1), x.norm(dim=-1), x.std(dim=1)],
    "activations": lambda x: [F.relu6(x), F.hardtanh(x), F.hardswish(x)],
    "pooling": lambda x: [F.avg_pool1d(x, 2), F.interpolate(x, scale_factor=2)],
    "losses": lambda x: [
        F.mse_loss(x, like(x)),
        F.huber_loss(x, like(x)),
        F.nll_loss(x.log_softmax(-1).flatten(0, 1), words(x).flatten()),
        F.kl_div(x.log_softmax(-1), like(x).softmax(-1), reduction="batchmean"),
    ],
    "cross entropy": lambda x: [
        F.cross_entropy(x.flatten(0, 1), words(x).flatten()),
        F.cross_entropy(x.flatten(0, 1), words(x).flatten(), reduction="none"),
        F.cross_entropy(x.flatten(0, 1), words(x).flatten(), reduction="sum"),
        F.cross_entropy(x.mT, words(x)),
        F.cross_entropy(x.mT, words(x), label_smoothing=0.1),
        F.cross_entropy(x.mT, words(x), weight=like(x)[0, 0]),
        F.cross_entropy(x[0, 0], words(x)[0, 0]),
        F.cross_entropy(x.flatten(0, 1), like(x).flatten(0, 1).softmax(-1)),
        F.cross_entropy(x[:, :-1].reshape(-1, x.shape[-1]), words(x)[:, 1:].reshape(-1)),
    ],
    "attention": lambda x: [
        F.scaled_dot_product_attention(x, x, like(x)),
        F.scaled_dot_product_attention(x[:, :, None], x[:, :, None], x[:, :, None]),
    ],
    "in place": lambda x: [changed(x), put_into_whole(x)],
    "indices": lambda x: [
        x[torch.arange(4), torch.arange(4)],
        x.gather(-1, words(x).abs()[..., :1, None] % 8),
    ],
    "made alike": lambda x: x * x.new_full((x.shape[-1],), 2.0),
    "as numbers": lambda x: torch.tensor(
        [x.sum().item(), float(x[0, 0, 0]), len(x), *x[0, 0].tolist()]
    ),
}


def gradient_of(results: list[torch.Tensor], value: torch.Tensor) -> torch.Tensor | None:
    moving = [each for each in results if each.requires_grad]
    if not moving:
        return None
    return torch.autograd.grad([(each * like(each)).sum() for each in moving], value)[0]


def results_of(call: Call, value: torch.Tensor) -> list[torch.Tensor]:
    results = everything_whole(call(value))
    return list(results) if isinstance(results, list | tuple) else [results]


def wrong(calls: str, size: int, dimension: int) -> dict[str, str]:
    """What functions give of sliced values that they do not give of whole ones."""
    found = {}
    with workers() as mesh:
        for name, call in {"in slices": IN_SLICES, "whole": WHOLE}[calls].items():
            try:
                far = str(distances(call, size, dimension, mesh))
            except Exception as error:
                far = str(error)
            if far != "[]":
                found[name] = far
    return found


def distances(call: Call, size: int, dimension: int, mesh: DeviceMesh) -> list[float]:
    """How far results and gradient are from those of a whole value, where they are."""
    torch.manual_seed(0)
    value = torch.randn(BATCH, LENGTH, size, requires_grad=True)
    expected = results_of(call, value * 1)
    gradient = gradient_of(expected, value)
    with implicit_replication(), SlicedValues(mesh):
        everywhere = DTensor.from_local(value, mesh, [Replicate()])
        parts = everywhere.redistribute(placements=[Shard(dimension)])
        results = results_of(call, parts * 1)
        far = [difference(*each) for each in zip(results, expected, strict=True)]
        found = gradient_of(results, value)
    if gradient is not None and found is not None:
        far.append(difference(found, gradient))
    return [each for each in far if each > 1e-5]


SLICES = [
    pytest.param(8, 0, marks=pytest.mark.nightly),
    (8, 1),
    pytest.param(8, 2, marks=pytest.mark.nightly),
    (9, 2),
]
"""The last dimension's size, and the dimension that is sliced."""


def test_what_is_computed_in_slices_is_named() -> None:
    assert IN_SLICES.keys() == COMPUTED_IN_SLICES


@pytest.mark.parametrize(("size", "dimension"), SLICES)
def test_what_is_computed_in_slices(size: int, dimension: int, tmp_path: Path) -> None:
    for found in run_ranks(wrong, 2, tmp_path, "in slices", size, dimension):
        assert found == {}


@pytest.mark.parametrize(("size", "dimension"), SLICES)
def test_what_is_computed_whole(size: int, dimension: int, tmp_path: Path) -> None:
    for found in run_ranks(wrong, 2, tmp_path, "whole", size, dimension):
        assert found == {}
