"""Which calls make the host wait, and that each is counted with its line.

Source: `torch.cuda.set_sync_debug_mode` of torch, and where its sources call
`warn_or_error_on_sync` and `cudaStreamSynchronize`.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paceline_simulated.waits import HostWait, host_waits, reset, strict
from simulated_devices import on_sim

WAITING: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "if": lambda x: bool(x.sum() > 0),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "print": repr,
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x[x > 0],
    "unique": torch.unique,
    "equal": lambda x: x.equal(x),
    "to the device": lambda x: torch.ones(3).to(x.device),
    "a tensor of Python's numbers": lambda x: torch.tensor([1.0], device=x.device),
    "an index on the host": lambda x: x[torch.tensor([1, 2])],
    "repeat_interleave by a tensor": lambda x: x.repeat_interleave((x > -9).long()),
}
"""Each waits at least once on CUDA, too."""

FREE: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda x: (x * 2 + 1).softmax(0),
    "index": lambda x: x[x.argsort()],
    "index_put": lambda x: x.clone().index_put_((x.argsort(),), x),
    "a number into a mask": lambda x: x.clone().masked_fill_(x > 0, 1.0),
    "a number into mask indices": lambda x: x.clone().__setitem__(x > 0, 1.0),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "zeros, full, arange": lambda x: torch.zeros_like(x) + torch.full((10,), 2.0, device=x.device),
    "random": lambda x: torch.rand(10, device=x.device),
    "dropout": lambda x: F.dropout(x, 0.5),
    "a number on the host": lambda x: x * torch.tensor(2.0),
    "slices": lambda x: x[2:5].add_(1),
    "topk": lambda x: x.topk(3),
    "norm": lambda x: torch._foreach_norm([x, x]),
    "to, non_blocking": lambda x: torch.ones(3).to(x.device, non_blocking=True),
}


@on_sim()
def test_which_calls_wait() -> None:
    x = torch.randn(10, device="sim")
    for name, call in WAITING.items():
        reset()
        call(x)
        assert host_waits(), f"{name} does not wait"
    for name, call in FREE.items():
        reset()
        call(x)
        assert not host_waits(), f"{name} waits: {host_waits()}"


@on_sim()
def test_a_wait_is_counted_with_its_line() -> None:
    x = torch.ones(3, device="sim")
    reset()
    for _ in range(4):
        x.sum().item()
    (wait,) = host_waits()
    line = test_a_wait_is_counted_with_its_line.body.__code__.co_firstlineno + 5
    assert wait == HostWait("read", "item", __file__, line, wait.function)
    assert wait.function == "test_a_wait_is_counted_with_its_line"
    assert host_waits().total() == 4


@on_sim()
def test_strict_mode_raises() -> None:
    x = torch.ones(3, device="sim")
    with strict():
        y = x * 2
        for call in (y.tolist, y.sum().item, torch.accelerator.synchronize, y.cpu):
            with pytest.raises(RuntimeError, match=r"strict mode: .* at .*test_waits\.py:\d+"):
                call()
    assert y.tolist() == [2.0] * 3


@on_sim()
def test_a_wait_in_backward_is_counted() -> None:
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            gradient.sum().item()
            return gradient

    x = torch.ones(3, device="sim", requires_grad=True)
    loss = Reads.apply(x).sum()  # type: ignore[no-untyped-call]
    reset()
    loss.backward()
    assert [(wait.what, wait.function) for wait in host_waits()] == [("item", "backward")]
    with strict(), pytest.raises(RuntimeError, match="strict mode"):
        Reads.apply(x).sum().backward()  # type: ignore[no-untyped-call]
