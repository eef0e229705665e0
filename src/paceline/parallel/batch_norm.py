"""Batch normalisation where a batch is divided: synchronised or not is said, not guessed.

It is the one common layer whose output for a sample depends on the rest of the batch. Statistics
of each part make another training than one device's; those of the whole are summed over workers.

The layers stay the user's own modules, with their parameters, buffers and names; only `forward` is
replaced. torch's SyncBatchNorm does not serve: it runs on GPUs only, and counts a borrowed sample.
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

_NAMED_LAYERS = 3
_KNOWN_FORWARDS = (BatchNormLayer.forward, nn.SyncBatchNorm.forward)


class BatchNorms:
    """What the batch-normalisation layers of one model have in common on this worker."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        """The workers whose samples are normalised together; None: each worker for itself."""
        self.part = (1, 1)
        """Of so many rows that pass now (the second), the first so many count (the first)."""

    def counting(self, samples: int, rows: int) -> AbstractContextManager[None]:
        """A block for the forward of a part of a batch, of whose rows the first `samples` count;
        also for its backward, or `again` for its checkpoints, where it is computed again."""
        return _Counting(self, (samples, rows))

    def again(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """For a checkpoint's context_fn: what counts now, counts when it is computed again."""
        return nullcontext(), _Counting(self, self.part)

    def counted(self, input: Tensor) -> int:
        """How many leading rows of a layer's input count; a layer may see several per sample."""
        samples, rows = self.part
        return len(input) * samples // rows

    def close(self) -> None:
        """Let go of the group; the layers, which outlive it, refer to it only through this."""
        self.group = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: a copy of a model, as for an average of weights, has the same workers."""
        return self


class _Counting(AbstractContextManager[None]):
    """A block that can be entered again, in which a part of the rows count."""

    def __init__(self, norms: BatchNorms, part: tuple[int, int]) -> None:
        self._norms, self._part, self._before = norms, part, part

    def __enter__(self) -> None:
        self._before, self._norms.part = self._norms.part, self._part

    def __exit__(self, *error: object) -> None:
        self._norms.part = self._before


def prepare_batch_norm(
    model: nn.Module, layout: Layout, group: dist.ProcessGroup | None, *, micro_batches: int
) -> BatchNorms:
    """Make the layers of a model normalise over what the layout says, in place.

    `group`: the workers that a global batch is divided over; `micro_batches`: forwards per step at
    the most. Blocks that are computed again in backward update running statistics once only.
    """
    synchronised = layout.batch_norm == "synchronised" and layout.data_workers > 1
    assert group is not None or not synchronised
    norms = BatchNorms(group if synchronised else None)
    named = {name or type(layer).__name__: layer for name, layer in model.named_modules()}
    layers = {name: layer for name, layer in named.items() if isinstance(layer, BatchNormLayer)}
    used = {name: layer for name, layer in layers.items() if _uses_batch_statistics(layer)}
    _check(used, layout, micro_batches)
    if layout.workers == 1 and micro_batches == 1 and layout.recompute == "none":
        return norms
    forward: Any = _forward
    if layout.compile and norms.group is not None:
        # Compiled sums may come in another order, and not in the same one on all workers.
        forward = torch.compiler.disable(_forward)  # type: ignore[no-untyped-call]
    for name, layer in layers.items():
        if _is_known(layer):
            bound = functools.partial(forward, layer, name, norms)
            layer.forward = bound  # type: ignore[method-assign]
    return norms


def average_running_statistics(model: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Give all workers of the group the mean of their running statistics, before they are used.

    Those that are equal already stay as they are, to the bit.
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
    """Refuse a layout that does not say which statistics these layers use, or cannot have them."""
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
            f"the model normalises over the batch in {_listed(layers)}, but a batch is divided"
            f" over {parts}: the statistics of a part differ from those of the whole",
            fix=f"give {local} or{f', {undivided},' if micro_batches > 1 else ''} `--batch-norm"
            " synchronised` (as on one device: two small sums per layer)",
        )
    if micro_batches > 1:
        raise PacelineError(
            f"batch_norm='synchronised' in {_listed(layers)}, but a worker's share passes as"
            f" {micro_batches} micro-batches, one after the other: the first cannot use the"
            " statistics of the last",
            fix=f"train {undivided}, or give {local}",
        )
    own = {name: layer for name, layer in layers.items() if not _is_known(layer)}
    if own:
        raise PacelineError(
            f"batch_norm='synchronised', but a forward of their own keeps {_listed(own)} from"
            " sharing statistics",
            fix=f"use torch's nn.BatchNorm layers as they are, or give {local}",
        )


def _listed(layers: dict[str, BatchNormLayer]) -> str:
    more = len(layers) - _NAMED_LAYERS
    return ", ".join(list(layers)[:_NAMED_LAYERS]) + (f" and {more} more" if more > 0 else "")


def _is_known(layer: BatchNormLayer) -> bool:
    """Whether a layer computes as torch's own do: subclasses may, for one, add an activation."""
    return type(layer).forward in _KNOWN_FORWARDS and "forward" not in vars(layer)


def _uses_batch_statistics(layer: BatchNormLayer) -> bool:
    return layer.training or layer.running_mean is None


def _recomputing() -> bool:
    """Whether backward does this forward again; torch has no public word for it."""
    # What is compiled is computed again without its effects on buffers.
    return not torch.compiler.is_compiling() and current_backward() is not None


def _forward(layer: BatchNormLayer, name: str, norms: BatchNorms, input: Tensor) -> Tensor:
    """What stands in the place of a layer's own forward."""
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
            f"{name} has a single value per channel to normalise over: one sample of a batch",
            fix="choose a batch of which every part has 2 samples or more, also of an epoch's last"
            " batch, or give `--batch-norm synchronised`",
        )
    if not _recomputing():
        return BatchNormLayer.forward(layer, input)
    # The same operations, but with a momentum that leaves the running statistics as they are.
    tracked = (layer.running_mean, layer.running_var) if layer.track_running_stats else (None, None)
    return F.batch_norm(input, *tracked, layer.weight, layer.bias, True, 0.0, layer.eps)


def _not_counted(layer: BatchNormLayer, input: Tensor) -> Tensor:
    """The output for rows that count for nothing: any that is finite and has a gradient."""
    mean, variance = layer.running_mean, layer.running_var
    if mean is None or variance is None:
        mean, variance = input.new_zeros(input.shape[1]), input.new_ones(input.shape[1])
    return F.batch_norm(input, mean, variance, layer.weight, layer.bias, eps=layer.eps)


def _over_all_workers(layer: BatchNormLayer, norms: BatchNorms, input: Tensor) -> Tensor:
    check_input_dim(layer, input)
    statistics = _statistics(input, norms)
    if layer.training and layer.track_running_stats and not _recomputing():
        _track(layer, *statistics)
    output: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
        input, layer.weight, layer.bias, statistics, layer.eps, norms
    )
    return output


@torch.no_grad()
def _statistics(input: Tensor, norms: BatchNorms) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel over all workers' rows, and how many values they are of.

    One sum does, for means and squares at once: each worker's own are taken the stable way, and
    their combination in float64 does not lose what float32 holds.
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
    """Update the running statistics, as torch's layer does with the whole batch."""
    if layer.running_mean is None or layer.running_var is None:
        return
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked += 1
    # Without a momentum, running statistics are the mean over all batches.
    new = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    unbiased = variance * values / (values - 1).clamp(min=1)
    for running, of_batch in ((layer.running_mean, mean), (layer.running_var, unbiased)):
        running.mul_(1 - new).add_(of_batch.to(running.dtype), alpha=new)


class _Normalise(torch.autograd.Function):
    """Normalise, with the gradient that also passes through statistics of all workers' rows.

    Losses of workers are parts of one sum, so what crosses between workers is summed in backward;
    a trainer that averages the gradients of parameters scales the losses accordingly.
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
        # This worker's part of the parameters' gradients: the others' are added with all the rest.
        of_bias, of_weight = _sum(gradient), _sum(gradient * normal)
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([of_bias, of_weight])
            dist.all_reduce(sums, group=ctx.norms.group)
            along_mean, along_deviation = (sums / values).chunk(2)
            if ctx.counts:  # the statistics do not depend on rows that do not count
                gradient = gradient - along_mean - normal * along_deviation
            of_input = (gradient * (slope if weight is None else slope * weight)).movedim(-1, 1)
        of_parameters = zip((of_weight, of_bias), ctx.needs_input_grad[1:3], strict=True)
        return of_input, *(each if needed else None for each, needed in of_parameters), *[None] * 3


def _channels_last(tensor: Tensor) -> Tensor:
    """A view to combine with one value per channel; at least in float32, as statistics need it."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)).movedim(1, -1)


def _sum(rows: Tensor) -> Tensor:
    return rows.sum(list(range(rows.ndim - 1)))
