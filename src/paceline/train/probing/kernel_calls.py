"""The kernels that a probe times: linear layers and attention of one size, forward and backward."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from paceline.specs.measurements.profile import TrainingPrecision

Call = Callable[[], object]
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_EIGHT_BITS = torch.float8_e4m3fn


class Calls(NamedTuple):
    """Calls of one kernel, and its FLOPs in forward."""

    forward: Call
    backward: tuple[Call, ...]
    flops: float


def linear_calls(
    sizes: tuple[int, int, int], precision: TrainingPrecision, device: torch.device
) -> Calls:
    """Return the product of a linear layer, and those of the gradients of its inputs and weights,
    each with the memory order of that use."""
    rows, inner, columns = sizes
    flops = 2.0 * rows * inner * columns
    if precision == "fp8":
        forward, inputs, weights = (
            _product_in_8_bits(*each, device)
            for each in ((rows, inner, columns), (rows, columns, inner), (columns, rows, inner))
        )
        return Calls(forward, (inputs, weights), flops)
    values, weight, gradient = (
        torch.randn(*shape, device=device, dtype=TYPES[precision])
        for shape in ((rows, inner), (columns, inner), (rows, columns))
    )
    return Calls(
        lambda: torch.mm(values, weight.t()),
        (lambda: torch.mm(gradient, weight), lambda: torch.mm(gradient.t(), values)),
        flops,
    )


def attention_calls(
    sizes: tuple[int, int, int],
    precision: TrainingPrecision,
    device: torch.device,
    *,
    causal: bool,
    fused: bool,
    queries_per_key: int = 1,
) -> Calls:
    """Return the core of attention of several heads; `fused`: by torch's choice of kernel, else
    by its products."""
    heads, tokens, width = sizes

    def some(count: int) -> torch.Tensor:
        made = torch.randn(1, count, tokens, width, device=device, dtype=TYPES[precision])
        return made.requires_grad_()

    query, key, value = some(heads), *(some(max(1, heads // queries_per_key)) for _ in range(2))
    gradient = torch.randn_like(query)

    def forward() -> torch.Tensor:
        grouped = queries_per_key > 1
        if fused:
            return F.scaled_dot_product_attention(
                query, key, value, is_causal=causal, enable_gqa=grouped
            )
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(
                query, key, value, is_causal=causal, enable_gqa=grouped
            )

    output = forward()

    def backward() -> object:
        return torch.autograd.grad(output, (query, key, value), gradient, retain_graph=True)

    work = 4.0 * heads * tokens**2 * width
    return Calls(forward, (backward,), work)


def _product_in_8_bits(rows: int, inner: int, columns: int, device: torch.device) -> Call:
    """Return a product with one scale for each matrix."""
    left = torch.randn(rows, inner, device=device).to(_EIGHT_BITS)
    right = torch.randn(columns, inner, device=device).to(_EIGHT_BITS).t()
    scale = torch.ones((), device=device)
    whole = F.ScalingType.TensorWise
    return lambda: F.scaled_mm(left, right, scale, whole, scale, whole)
