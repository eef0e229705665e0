"""What the parts of a global batch weigh in its mean."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.data.loader import Batch
from paceline.specs import Layout

Weigh = Callable[[Any], torch.Tensor]


def weight_of(part: Batch, weigh: Weigh | None) -> int | torch.Tensor:
    """The weight of a part: its samples, or what the user's function says of its target."""
    if weigh is None:
        return part.samples
    # A borrowed sample counts for nothing, whatever its target says.
    _, target = part.counted(None)
    return weigh(target).to(torch.float32) * (part.samples > 0)


class Weights:
    """The weights of one worker's parts of a batch, and of the whole batch.

    The sum over the workers, where one is needed, is begun at once and awaited when it is asked
    for, so that nobody waits for it in between.
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
        if isinstance(self.mine, torch.Tensor):
            self._total = self.mine.clone()
            # Slices and stages of a copy all weigh the same part of the batch.
            self._total /= layout.workers // layout.data_workers
            if replicas_differ:  # who steps alone asks nobody what a batch weighs elsewhere
                self._total = groups.sum_in_copy(self._total) * layout.replicas
            else:
                self._work = groups.sum_later(self._total)

    def total(self) -> Any:
        """The weight of the whole batch."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        return self._total

    def mean(self, losses: Sequence[torch.Tensor]) -> torch.Tensor:
        """The mean over this worker's parts; of the last one where none counts, and not a number
        where there are no losses: before the last stage of a pipeline."""
        if not losses:
            return torch.tensor(math.nan)
        if len(losses) == 1:
            return losses[0]
        weighted = [loss * weight for loss, weight in zip(losses, self.each, strict=True)]
        some = self.mine.clamp(min=1e-9) if torch.is_tensor(self.mine) else max(1, self.mine)
        return torch.stack(weighted).sum() / some
