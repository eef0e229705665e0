"""Batch normalization over a divided batch: the layout states whether it is synchronized.

It is the one common layer whose output for a sample depends on the rest of the batch. Statistics
of local batches change the training; statistics of the global batch are summed over workers.

The layers stay the user's modules, with their parameters, buffers and names; only `forward` is
replaced. torch's SyncBatchNorm does not fit: it runs on GPUs only, and it counts padding samples.
"""

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from paceline.comm.torch_internals import BatchNormLayer, check_input_dim, current_backward
from paceline.specs import Layout, PacelineError
from paceline.specs.units import first_few

_KNOWN_FORWARDS = (BatchNormLayer.forward, nn.SyncBatchNorm.forward)


class BatchNorms:
    """State shared by the batch-normalization layers of one model on this worker."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        """The workers whose samples are normalized together; None: each worker separately."""
        self.part = (1, 1)
        """`(valid_rows, total_rows)` of the current forward; rows past `valid_rows` are padding."""

    def counting(self, samples: int, rows: int) -> AbstractContextManager[None]:
        """Mark the first `samples` of `rows` rows as valid inside the block. Wrap a forward in it,
        and a backward that recomputes; checkpoints may use `again` instead."""
        return _Counting(self, (samples, rows))

    def again(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return a checkpoint's contexts, which keep the current `part` for recomputation."""
        return nullcontext(), _Counting(self, self.part)

    def counted(self, input: Tensor) -> int:
        """Return the number of valid leading rows of a layer's input, maybe several per sample."""
        samples, rows = self.part
        return len(input) * samples // rows

    def close(self) -> None:
        """Release the group; the layers outlive it and refer to it only through this object."""
        self.group = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return self: a copy of a model, such as a weight average, uses the same workers."""
        return self


class _Counting(AbstractContextManager[None]):
    """A reentrant context manager that sets how many rows are valid."""

    def __init__(self, norms: BatchNorms, part: tuple[int, int]) -> None:
        self._norms, self._part, self._before = norms, part, part

    def __enter__(self) -> None:
        self._before, self._norms.part = self._norms.part, self._part

    def __exit__(self, *error: object) -> None:
        self._norms.part = self._before


def prepare_batch_norm(
    model: nn.Module, layout: Layout, group: dist.ProcessGroup | None, *, micro_batches: int
) -> BatchNorms:
    """Make a model's layers normalize over the samples that the layout says, in place.

    `group` holds the workers that a global batch is divided over; `micro_batches` is the largest
    number of forwards per step. Blocks recomputed in backward update running statistics only once.
    """
    synchronized = layout.batch_norm == "synchronized" and layout.data_workers > 1
    assert group is not None or not synchronized
    norms = BatchNorms(group if synchronized else None)
    named = {name or type(layer).__name__: layer for name, layer in model.named_modules()}
    layers = {name: layer for name, layer in named.items() if isinstance(layer, BatchNormLayer)}
    used = {name: layer for name, layer in layers.items() if _uses_batch_statistics(layer)}
    _check(used, layout, micro_batches)
    if layout.workers == 1 and micro_batches == 1 and layout.recompute == "none":
        return norms
    forward: Any = _forward
    if layout.compile and norms.group is not None:
        # Compiled sums may run in another order, which may differ between workers.
        forward = torch.compiler.disable(_forward)  # type: ignore[no-untyped-call]
    for name, layer in layers.items():
        if _is_known(layer):
            bound = functools.partial(forward, layer, name, norms)
            layer.forward = bound  # type: ignore[method-assign]
    return norms


def average_running_statistics(model: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Average the running statistics over the group's workers, before the model is used.

    Statistics that are already equal stay bit-identical.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, BatchNormLayer)]
    both = [buffer for layer in layers for buffer in (layer.running_mean, layer.running_var)]
    buffers = [buffer for buffer in both if buffer is not None]
    if group is None or not buffers:
        return
    values = torch.cat([buffer.double() for buffer in buffers])
    dist.all_reduce(values, group=group)
    values /= group.size()
    means = torch.split(values, [len(buffer) for buffer in buffers])
    for buffer, mean in zip(buffers, means, strict=True):
        buffer.copy_(mean)


def _check(layers: dict[str, BatchNormLayer], layout: Layout, micro_batches: int) -> None:
    """Reject a layout that does not state which statistics to use, or cannot provide them."""
    counts = {"workers": layout.data_workers, "micro-batches": micro_batches}
    parts = " and ".join(f"{count} {what}" for what, count in counts.items() if count > 1)
    if not layers or not parts or layout.batch_norm == "local":
        return
    undivided = "without --micro-batch and pipeline"
    local = (
        "`--batch-norm local` (each worker's micro-batch has its own statistics: faster; the"
        " training differs from one device's)"
    )
    if layout.batch_norm is None:
        raise PacelineError(
            f"the model normalizes over the batch in {first_few(layers)}, but a batch is divided"
            f" over {parts}: the statistics of a part differ from those of the whole",
            fix=f"give {local} or{f', {undivided},' if micro_batches > 1 else ''} `--batch-norm"
            " synchronized` (as on one device: two small sums per layer)",
        )
    if micro_batches > 1:
        raise PacelineError(
            f"batch_norm='synchronized' in {first_few(layers)}, but a local batch is divided into"
            f" {micro_batches} micro-batches: the first cannot use the statistics of the last",
            fix=f"train {undivided}, or give {local}",
        )
    own = {name: layer for name, layer in layers.items() if not _is_known(layer)}
    if own:
        raise PacelineError(
            f"batch_norm='synchronized', but {first_few(own)} cannot share statistics, because of"
            " a custom forward",
            fix=f"use torch's nn.BatchNorm layers as they are, or give {local}",
        )


def _is_known(layer: BatchNormLayer) -> bool:
    """Whether a layer computes as torch's own; a subclass may, for example, add an activation."""
    return type(layer).forward in _KNOWN_FORWARDS and "forward" not in vars(layer)


def _uses_batch_statistics(layer: BatchNormLayer) -> bool:
    return layer.training or layer.running_mean is None


def _recomputing() -> bool:
    """Whether backward recomputes this forward; torch has no public API for this."""
    # Compiled code is recomputed without its side effects on buffers.
    return not torch.compiler.is_compiling() and current_backward() is not None


def _forward(layer: BatchNormLayer, name: str, norms: BatchNorms, input: Tensor) -> Tensor:
    """Replace a layer's own forward."""
    if not _uses_batch_statistics(layer):
        return BatchNormLayer.forward(layer, input)
    if norms.group is not None:
        return _over_all_workers(layer, norms, input)
    counted = norms.counted(input)
    if counted == len(input):
        return _over_own_rows(layer, name, input)
    others = _not_counted(layer, input[counted:])
    return torch.cat([_over_own_rows(layer, name, input[:counted]), others]) if counted else others


def _over_own_rows(layer: BatchNormLayer, name: str, input: Tensor) -> Tensor:
    if input.numel() == input.shape[1]:
        raise PacelineError(
            f"{name} has a single value per channel to normalize over: one sample",
            fix="choose a batch size that gives every part at least 2 samples, also in an epoch's"
            " last batch, or give `--batch-norm synchronized`",
        )
    if not _recomputing():
        return BatchNormLayer.forward(layer, input)
    # The same operations, but a momentum of 0 leaves the running statistics unchanged.
    tracked = (layer.running_mean, layer.running_var) if layer.track_running_stats else (None, None)
    return F.batch_norm(input, *tracked, layer.weight, layer.bias, True, 0.0, layer.eps)


def _not_counted(layer: BatchNormLayer, input: Tensor) -> Tensor:
    """Return an output for padding rows; any finite value with a gradient will do."""
    mean, variance = layer.running_mean, layer.running_var
    if mean is None or variance is None:
        mean, variance = input.new_zeros(input.shape[1]), input.new_ones(input.shape[1])
    return F.batch_norm(input, mean, variance, layer.weight, layer.bias, eps=layer.eps)


def _over_all_workers(layer: BatchNormLayer, norms: BatchNorms, input: Tensor) -> Tensor:
    check_input_dim(layer, input)
    statistics = _statistics(input, norms)
    if layer.training and layer.track_running_stats and not _recomputing():
        _track(layer, *statistics)
    output: Tensor = _Normalize.apply(  # type: ignore[no-untyped-call]
        input, layer.weight, layer.bias, statistics, layer.eps, norms
    )
    return output


@torch.no_grad()
def _statistics(input: Tensor, norms: BatchNorms) -> tuple[Tensor, Tensor, Tensor]:
    """Return each channel's mean and variance over all workers' rows, and the number of values.

    One all-reduce sums means and squares: each worker computes its own in a numerically stable way,
    and combining them in float64 keeps float32's precision.
    """
    rows = _channels_last(input)
    counts = norms.counted(input) > 0  # all rows or none, as there are no micro-batches
    values = counts * (rows.numel() // rows.shape[-1])
    mean = rows.mean(list(range(rows.ndim - 1)))
    mean, squares = mean.double(), _sum((rows - mean).square_()).double() * counts
    sums = torch.cat([mean * values, squares + mean**2 * values, mean.new_full((1,), values)])
    dist.all_reduce(sums, group=norms.group)
    mean, square = (sums[:-1] / sums[-1]).chunk(2)
    return mean, (square - mean**2).clamp_(min=0), sums[-1]


@torch.no_grad()
def _track(layer: BatchNormLayer, mean: Tensor, variance: Tensor, values: Tensor) -> None:
    """Update the running statistics as torch's layer does with the whole batch."""
    if layer.running_mean is None or layer.running_var is None:
        return
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked += 1
    # Without a momentum, running statistics are the mean over all batches.
    new = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    unbiased = variance * values / (values - 1).clamp(min=1)
    for running, of_batch in ((layer.running_mean, mean), (layer.running_var, unbiased)):
        running.mul_(1 - new).add_(of_batch.to(running.dtype), alpha=new)


class _Normalize(torch.autograd.Function):
    """Normalize, with a gradient that also flows through the statistics of all workers' rows.

    The workers' losses are parts of one sum, so backward sums the terms that cross workers. A
    trainer that averages parameter gradients scales the losses accordingly.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        statistics: tuple[Tensor, Tensor, Tensor],
        eps: float,
        norms: BatchNorms,
    ) -> Tensor:
        ctx.save_for_backward(input, weight, *statistics)
        ctx.eps, ctx.norms, ctx.counts = eps, norms, norms.counted(input) > 0
        mean, variance, _ = statistics
        kind = torch.promote_types(input.dtype, torch.float32) if weight is None else weight.dtype
        return F.batch_norm(input, mean.to(kind), variance.to(kind), weight, bias, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, mean, variance, values = ctx.saved_tensors
        rows, gradient = _channels_last(input), _channels_last(gradient)
        slope = (variance + ctx.eps).rsqrt().to(rows.dtype)
        normal = (rows - mean.to(rows.dtype)) * slope
        # This worker's part of the parameter gradients: gradient synchronization adds the others'.
        of_bias, of_weight = _sum(gradient), _sum(gradient * normal)
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([of_bias, of_weight])
            dist.all_reduce(sums, group=ctx.norms.group)
            along_mean, along_deviation = (sums / values).chunk(2)
            if ctx.counts:  # the statistics do not depend on padding rows
                gradient = gradient - along_mean - normal * along_deviation
            of_input = (gradient * (slope if weight is None else slope * weight)).movedim(-1, 1)
        of_parameters = zip((of_weight, of_bias), ctx.needs_input_grad[1:3], strict=True)
        return of_input, *(each if needed else None for each, needed in of_parameters), *[None] * 3


def _channels_last(tensor: Tensor) -> Tensor:
    """Return a view that broadcasts with one value per channel, in float32 or wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)).movedim(1, -1)


def _sum(rows: Tensor) -> Tensor:
    return rows.sum(list(range(rows.ndim - 1)))
