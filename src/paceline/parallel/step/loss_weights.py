"""Weights of the micro-batches in the mean loss of a global batch."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.data.loader import Batch
from paceline.specs import Layout

Weigh = Callable[[Any], torch.Tensor]


def weight_of(part: Batch, weigh: Weigh | None) -> int | torch.Tensor:
    """Return a micro-batch's weight: its samples, or the user's function of its target."""
    if weigh is None:
        return part.samples
    # A padding sample has no weight, whatever its target.
    _, target = part.counted(None)
    return weigh(target).to(torch.float32) * (part.samples > 0)


class Weights:
    """The weights of one worker's micro-batches, and of the global batch.

    A sum over the workers, where needed, starts at once and is awaited only when it is read, so
    that it overlaps other work.
    """

    def __init__(
        self,
        parts: Sequence[Batch],
        weigh: Weigh | None,
        layout: Layout,
        groups: Groups,
        *,
        replicas_differ: bool = False,
    ) -> None:
        self.each = [weight_of(part, weigh) for part in parts]
        self.mine: Any = sum(self.each[1:], self.each[0])
        self._total: Any = parts[0].global_samples
        self._work = None
        self._device = groups.device
        if isinstance(self.mine, torch.Tensor):
            self._total = self.mine.clone()
            # All slices and stages of a replica weigh the same local batch.
            self._total /= layout.workers // layout.data_workers
            if replicas_differ:  # local steps do not wait for other replicas
                self._total = groups.sum_in_replica(self._total) * layout.replicas
            else:
                self._work = groups.sum_later(self._total)

    def total(self) -> Any:
        """Return the weight of the global batch."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        return self._total

    def mean(self, losses: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the mean loss over this worker's micro-batches: NaN without losses (before the
        last pipeline stage), and a single micro-batch's loss even if its weight is 0."""
        if not losses:
            return torch.full((), math.nan, device=self._device)
        if len(losses) == 1:
            return losses[0]
        weighted = [loss * weight for loss, weight in zip(losses, self.each, strict=True)]
        some = self.mine.clamp(min=1e-9) if torch.is_tensor(self.mine) else max(1, self.mine)
        return torch.stack(weighted).sum() / some
