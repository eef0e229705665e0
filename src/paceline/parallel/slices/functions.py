"""torch functions that are computed on tensor-parallel slices, and our own versions of some.

DTensor supports nearly every function, but not always correctly. In PyTorch 2.13, `cumsum` along
the sliced dimension is wrong, and so is a mean of losses with ignored targets; some functions lack
a backward. Therefore this file lists the functions allowed between sliced layers, each with its own
test; all others are computed on full tensors.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn import functional as F

from paceline.parallel.slices.cross_entropy import cross_entropy
from paceline.parallel.slices.sliced_tensors import placed, spread

_VIEWS = """
    view view_as reshape reshape_as flatten unflatten transpose swapaxes swapdims permute movedim t
    T mT squeeze unsqueeze expand expand_as chunk split split_with_sizes tensor_split unbind narrow
    select __getitem__ contiguous clone repeat repeat_interleave cat concat stack view_as_complex
    view_as_real
"""
_ELEMENTWISE = """
    add sub mul div neg abs pow square sqrt rsqrt exp log sin cos __rsub__ __rdiv__ maximum minimum
    clamp where masked_fill tanh sigmoid relu gelu silu leaky_relu elu softplus mish lt le gt ge eq
    ne __eq__ __ne__ __and__ __or__ __invert__ logical_and logical_or logical_not to type type_as
    float half bfloat16 double zeros_like ones_like full_like
"""
_PRODUCTS = "matmul mm bmm baddbmm addmm einsum linear"
_ALONG_DIMENSIONS = "sum mean amax amin softmax log_softmax logsumexp layer_norm rms_norm"
_QUESTIONS = """
    shape size dim ndim ndimension numel nelement dtype device layout stride is_contiguous
    storage_offset element_size is_floating_point is_complex is_nested is_sparse is_quantized
    is_cuda is_cpu is_meta is_leaf is_inference requires_grad requires_grad_ grad grad_fn
    retain_grad retains_grad _grad _version _base _backward_hooks output_nr names has_names detach
    data register_hook get_device result_type __set__ __delete__ __len__ __hash__ __repr__
    __format__
"""

COMPUTED_IN_SLICES = frozenset(
    " ".join((_VIEWS, _ELEMENTWISE, _PRODUCTS, _ALONG_DIMENSIONS)).split()
)
"""Functions that DTensor computes correctly for any slicing of their arguments."""

NOT_COMPUTED = frozenset(_QUESTIONS.split())
"""Functions and attributes that only query or set properties of a tensor."""


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    **options: Any,
) -> Any:
    """Compute attention for the local heads, with the kernel that full tensors would use."""
    sliced = [each for each in (query, key, value) if isinstance(each, DTensor)]
    if not any(each.placements == (Shard(1),) and each.ndim == 4 for each in sliced):
        return NotImplemented
    mesh = sliced[0].device_mesh
    if any(each.shape[1] % mesh.size() for each in (query, key, value)):
        return NotImplemented

    def heads_here(each: torch.Tensor) -> torch.Tensor:
        return placed(spread(each, mesh), Shard(1)).to_local()

    if attn_mask is not None:
        attn_mask = _mask_here(attn_mask, mesh)
    with own_random_numbers(sliced[0], needed=dropout_p > 0):
        mixed = F.scaled_dot_product_attention(
            heads_here(query), heads_here(key), heads_here(value), attn_mask, dropout_p, **options
        )
    return DTensor.from_local(mixed, mesh, [Shard(1)], run_check=False)


def _mask_here(mask: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    everywhere = spread(mask, mesh)
    if mask.ndim > 2 and mask.shape[-3] > 1:
        return placed(everywhere, Shard(mask.ndim - 3)).to_local()
    # One mask for all heads: each worker has its heads' part of a learned mask's gradient.
    return placed(everywhere, Replicate()).to_local(grad_placements=[Partial()])


def dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    """Apply dropout to the local slice, with a different mask on every worker."""
    if not isinstance(input, DTensor) or input.placements[0].is_partial() or inplace:
        return NotImplemented
    with own_random_numbers(input, needed=training and 0 < p < 1):
        local = F.dropout(input.to_local(), p, training)
    return DTensor.from_local(
        local,
        input.device_mesh,
        input.placements,
        run_check=False,
        shape=input.shape,
        stride=input.stride(),
    )


@contextmanager
def own_random_numbers(value: DTensor, *, needed: bool = True) -> Iterator[None]:
    """Draw this worker's own random numbers for a sliced tensor, and shared ones otherwise.

    After the block, random numbers are again equal on all workers, because each draws in the same
    order. Recomputing a block draws the same numbers.
    """
    if not needed:
        yield
        return
    seed = int(torch.randint(2**62, ()).item())
    if value.placements[0].is_shard():
        seed += value.device_mesh.get_local_rank()
    devices = [] if value.device.type == "cpu" else [value.device]
    with torch.random.fork_rng(devices, device_type=value.device.type):
        torch.manual_seed(seed)
        yield


OWN_FORMS: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: attention,
    F.cross_entropy: cross_entropy,
    F.dropout: dropout,
}
"""Functions with our own sliced version, which may return NotImplemented."""
