"""A step whose gradient is not finite is not taken: it is computed once more.

If that goes well, something went wrong in the machine, and training goes on. If not, it is in the
training itself, and ends. The gradient that replicas have averaged is the same on all of them, so
that all decide alike without asking each other; only when it has happened do they ask who it was.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.comm.torch_internals import foreach_norm, sparse_values
from paceline.parallel.arranged import Arranged
from paceline.specs import Layout, PacelineError, SyncSettings
from paceline.train.gradients.accumulation import BatchLoss


class FiniteGradients:
    """Looks at every gradient before it is used."""

    def __init__(
        self,
        layout: Layout,
        sync: SyncSettings,
        groups: Groups,
        *,
        clips: bool,
        restore_buffers: Callable[[], None],
        say: Callable[[int, list[int], str], None],
        last_loss: Callable[[], float],
    ) -> None:
        self.squared_norm: torch.Tensor | None = None
        """Of the gradient over the whole model, where it is clipped and was looked at."""
        self._groups = groups
        self._clips = clips
        self._say = say
        """Is told of a step that was computed again, because of whom, and what it was."""
        self._last_loss = last_loss
        self._alone = sync.replicas_differ
        """Whether a replica decides by itself, since its gradients are its own."""
        self._whole = layout.workers == layout.replicas
        self._watches = layout.precision != "fp16" and _knows(layout, sync, clips=clips)
        self._put_back = restore_buffers
        """Takes back what a forward has changed beside the gradients."""

    def learned(self, step: int, arranged: Arranged, learn: Callable[[], BatchLoss]) -> BatchLoss:
        """What `learn` gave, which leaves the gradient of a step in the parameters."""
        if not self._watches:
            return learn()
        learned = learn()
        if self._is_finite(arranged):
            return learned
        ranks, loss = self._who(learned, own_gradient_is_bad=False)
        self._forget(arranged)
        noted = _Noted()
        with noted.gradients(arranged) if self._whole else nullcontext():
            learned = learn()
        if self._is_finite(arranged):
            self._say(step, ranks, _what_happened(ranks, loss))
        elif not self._alone:
            ranks, loss = self._who(learned, own_gradient_is_bad=noted.bad)
            raise not_finite(
                "gradient" if math.isfinite(loss) else "loss",
                math.nan if math.isfinite(loss) else loss,
                step,
                ranks if self._groups.placement.workers > 1 else [],
                self._last_loss(),
            )
        # Else replicas of their own go on: all hear of it by their losses, and end together.
        return learned

    def _is_finite(self, arranged: Arranged) -> bool:
        if self._clips:
            self.squared_norm = norm = arranged.squared_norm()
        else:
            # Norms read every number once; of what is not finite, no norm is.
            gradients = _gradients(arranged)
            norms = foreach_norm(gradients) if gradients else ()
            norm = torch.stack(norms).sum() if norms else torch.zeros(())
        if norm.isfinite():
            return True
        # The norm of large numbers overflows before they do, and who has all of them can tell.
        return self._whole and all(each.isfinite().all() for each in _gradients(arranged))

    def _forget(self, arranged: Arranged) -> None:
        for parameter in arranged.parameters():
            parameter.grad = None
        self._put_back()

    def _who(self, learned: BatchLoss, *, own_gradient_is_bad: bool) -> tuple[list[int], float]:
        """Whose loss or own gradient is not finite, and the sum of the losses that count."""
        counted = float(learned.loss) if float(learned.weights) > 0 else 0.0
        placement = self._groups.placement
        if self._alone or placement.workers == 1:
            return [placement.rank], counted
        ranks = ranks_where(own_gradient_is_bad or not math.isfinite(counted), self._groups)
        return ranks, float(self._groups.sum(torch.tensor(counted, device=self._groups.device)))


class _Noted:
    """Whether a gradient was not finite on this worker before it was averaged with others."""

    bad = False

    @contextmanager
    def gradients(self, arranged: Arranged) -> Iterator[None]:
        def note(parameter: nn.Parameter) -> None:
            self.bad |= parameter.grad is not None and not bool(parameter.grad.isfinite().all())

        hooks = [
            each.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]
            for each in arranged.parameters()
            if each.requires_grad
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _gradients(arranged: Arranged) -> list[torch.Tensor]:
    gradients = [local_tensor(each.grad) for each in arranged.parameters() if each.grad is not None]
    return [sparse_values(each) if each.is_sparse else each for each in gradients]


def _knows(layout: Layout, sync: SyncSettings, *, clips: bool) -> bool:
    """Whether all who use a gradient together see that it is not finite, without asking.

    Shards, slices and stages each see their part; they know of the others where the norm is summed
    for clipping. What compression has lost of a bad gradient it would add to the next one.
    """
    whole = layout.workers == layout.replicas
    if sync.replicas_differ:
        return whole and not sync.undecided
    return sync.by_engine and (whole or clips)


def _what_happened(ranks: list[int], loss: float) -> str:
    again = "and finite when the step was computed again, which counts"
    if not ranks:
        return f"the gradient was not finite, though every loss was, {again}"
    what = "gradient was not finite" if math.isfinite(loss) else f"loss was {loss}"
    workers = "worker" if len(ranks) == 1 else "workers"
    return f"the {what} on {workers} {', '.join(map(str, ranks))}, {again}"


def ranks_where(true: bool, groups: Groups) -> list[int]:
    """The workers on which something is true, which all call together; none where one is alone."""
    placement = groups.placement
    flags = torch.zeros(placement.workers, device=groups.device)
    flags[placement.rank] = float(true)
    found: list[int] = groups.sum(flags).nonzero().flatten().tolist()
    return found if placement.workers > 1 else []


def not_finite(
    what: str, value: float, step: int, ranks: list[int], before: float
) -> PacelineError:
    """What ends a training whose loss or gradient is not a number."""
    of = f" on worker {', '.join(map(str, ranks))}" if ranks else ""
    was = f" (the loss was {before:.4g} one step before)" if math.isfinite(before) else ""
    return PacelineError(
        f"the {what} became {value} at step {step}{of}{was}",
        fix="lower the learning rate, add warm-up, give Training(clip=1.0), or look for bad samples"
        " in the data",
    )
