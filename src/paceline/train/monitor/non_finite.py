"""Detection of non-finite gradients: the step is computed once more before it is applied.

If the second gradient is finite, the cause was a hardware error, and training continues. If not,
the cause is the training itself, and the run ends. The averaged gradient is the same on all
replicas, so all decide alike without communication; they communicate only to find the ranks.

An accelerator skips the update by itself, and the host learns of it later (`skipped_steps.py`):
to compute the step again before the next one, the host would wait in every step.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.comm.torch_internals import check_finite_, sparse_values
from paceline.parallel.parallel_model import ParallelModel
from paceline.specs import Layout, PacelineError, SyncSettings
from paceline.train.gradients.accumulation import BatchLoss
from paceline.train.gradients.buffers import Buffers


class FiniteGradients:
    """A check of every gradient before the optimizer uses it."""

    def __init__(
        self,
        layout: Layout,
        sync: SyncSettings,
        groups: Groups,
        *,
        clips: bool,
        skips: bool,
        buffers: Buffers,
        on_non_finite: Callable[[int, list[int], str], None],
        last_loss: Callable[[], float],
    ) -> None:
        self.squared_norm: torch.Tensor | None = None
        """Squared gradient norm of the whole model, if gradients are clipped and checked."""
        self.flag: torch.Tensor | None = None
        """1 on the device if the last gradient was not finite; None if the host has checked it."""
        self._skips = skips and groups.device.type != "cpu"
        self._groups = groups
        self._clips = clips
        self._on_non_finite = on_non_finite
        """Report a repeated step: `(step, ranks, message)`."""
        self._last_loss = last_loss
        self._alone = sync.replicas_differ
        """Whether each replica decides alone, because its gradients are not averaged."""
        self._whole = layout.workers == layout.replicas
        self._watches = layout.precision != "fp16" and _knows(layout, sync, clips=clips)
        self._found = torch.zeros((), device=groups.device)
        self._factor = torch.ones((), device=groups.device)
        """The operands of `check_finite_`."""
        self._buffers = buffers

    def learned(
        self, step: int, parallel_model: ParallelModel, learn: Callable[[], BatchLoss]
    ) -> BatchLoss:
        """Run `learn`, which computes a step's gradients, and return its loss; retry once."""
        if not self._watches:
            return learn()
        learned = learn()
        if self._skips:
            self.flag = self._flag(parallel_model)
            self._buffers.restore_where(self.flag)
            return learned
        if self._is_finite(parallel_model):
            return learned
        ranks, loss = self._who(learned, own_gradient_is_bad=False)
        self._forget(parallel_model)
        noted = _Noted()
        with noted.gradients(parallel_model) if self._whole else nullcontext():
            learned = learn()
        if self._is_finite(parallel_model):
            self._on_non_finite(step, ranks, _what_happened(ranks, loss))
        elif not self._alone:
            ranks, loss = self._who(learned, own_gradient_is_bad=noted.bad)
            raise not_finite(
                "gradient" if math.isfinite(loss) else "loss",
                math.nan if math.isfinite(loss) else loss,
                step,
                ranks if self._groups.placement.workers > 1 else [],
                self._last_loss(),
            )
        # Otherwise independent replicas continue: telemetry shares the loss, and all end together.
        return learned

    def _is_finite(self, parallel_model: ParallelModel) -> bool:
        if self._clips:
            self.squared_norm = parallel_model.squared_norm()
            if math.isfinite(self.squared_norm.item()):
                return True
        # A norm can overflow while all values are finite; a worker with all of them can check.
        return self._whole and self._has_finite_values(_gradients(parallel_model))

    def _flag(self, parallel_model: ParallelModel) -> torch.Tensor:
        """Return whether the gradient is not finite, as a number on the device."""
        if self._clips:
            self.squared_norm = parallel_model.squared_norm()
            if not self._whole:
                return self.squared_norm.isfinite().logical_not().float()
        flag = torch.zeros_like(self._found)
        self._look(_gradients(parallel_model), flag)
        return flag

    def _has_finite_values(self, gradients: list[torch.Tensor]) -> bool:
        self._look(gradients, self._found)
        if not self._found.item():
            return True
        self._found.zero_()
        return False

    def _look(self, gradients: list[torch.Tensor], found: torch.Tensor) -> None:
        types = {each.dtype for each in gradients}
        for dtype in types:
            same = gradients if len(types) == 1 else [g for g in gradients if g.dtype == dtype]
            check_finite_(same, found, self._factor)

    def _forget(self, parallel_model: ParallelModel) -> None:
        for parameter in parallel_model.parameters():
            parameter.grad = None
        self._buffers.restore()

    def _who(self, learned: BatchLoss, *, own_gradient_is_bad: bool) -> tuple[list[int], float]:
        """Return the ranks with a non-finite loss or local gradient, and the sum of losses."""
        counted = float(learned.loss) if float(learned.weights) > 0 else 0.0
        placement = self._groups.placement
        if self._alone or placement.workers == 1:
            return [placement.rank], counted
        ranks = ranks_where(own_gradient_is_bad or not math.isfinite(counted), self._groups)
        return ranks, float(self._groups.sum(torch.tensor(counted, device=self._groups.device)))


class _Noted:
    """Whether this worker's local gradient, before averaging, was not finite."""

    bad = False

    @contextmanager
    def gradients(self, parallel_model: ParallelModel) -> Iterator[None]:
        def note(parameter: nn.Parameter) -> None:
            self.bad |= parameter.grad is not None and not bool(parameter.grad.isfinite().all())

        hooks = [
            each.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]
            for each in parallel_model.parameters()
            if each.requires_grad
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _gradients(parallel_model: ParallelModel) -> list[torch.Tensor]:
    return [_values(each.grad) for each in parallel_model.parameters() if each.grad is not None]


def _values(gradient: torch.Tensor) -> torch.Tensor:
    """Return the real numbers that this worker holds of a gradient."""
    values = local_tensor(gradient)
    if values.is_sparse:
        values = sparse_values(values)
    return torch.view_as_real(values) if values.is_complex() else values


def _knows(layout: Layout, sync: SyncSettings, *, clips: bool) -> bool:
    """Return whether all workers that share a gradient detect a non-finite one without asking.

    Shards, tensor-parallel slices and pipeline stages see only their part; they learn of the others
    when clipping sums the norm. Compression would carry a bad gradient into the next one through
    its error feedback.
    """
    whole = layout.workers == layout.replicas
    if sync.replicas_differ:
        return whole and not sync.undecided
    return sync.by_engine and (whole or clips)


def _what_happened(ranks: list[int], loss: float) -> str:
    again = "but finite when the step was repeated; the repeated step counts"
    if not ranks:
        return f"the gradient was not finite, though every loss was, {again}"
    what = "gradient was not finite" if math.isfinite(loss) else f"loss was {loss}"
    workers = "worker" if len(ranks) == 1 else "workers"
    return f"the {what} on {workers} {', '.join(map(str, ranks))}, {again}"


def ranks_where(true: bool, groups: Groups) -> list[int]:
    """Return the ranks where `true` holds, or none for a single worker. All ranks call this."""
    placement = groups.placement
    flags = torch.zeros(placement.workers, device=groups.device)
    flags[placement.rank] = float(true)
    found: list[int] = groups.sum(flags).nonzero().flatten().tolist()
    return found if placement.workers > 1 else []


def not_finite(
    what: str, value: float, step: int, ranks: list[int], before: float
) -> PacelineError:
    """Return the error that ends a training with a non-finite loss or gradient."""
    of = f" on worker {', '.join(map(str, ranks))}" if ranks else ""
    was = f" (the loss was {before:.4g} one step before)" if math.isfinite(before) else ""
    return PacelineError(
        f"the {what} became {value} at step {step}{of}{was}",
        fix="lower the learning rate, add warm-up, give Training(clip=1.0), or look for bad samples"
        " in the data",
    )
