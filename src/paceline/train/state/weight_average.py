"""An exponential moving average of the weights, as torch's `AveragedModel` computes it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from paceline.comm.dtensor import local_tensor
from paceline.comm.torch_internals import foreach_copy_
from paceline.parallel.parallel_model import ParallelModel
from paceline.specs import PacelineError, SyncSettings


class WeightAverage:
    """The average of this worker's part of the trainable weights; buffers stay the model's."""

    def __init__(self, decay: float, parallel_model: ParallelModel) -> None:
        self.updates = 0
        """Number of steps in the average."""
        learning = [each for each in parallel_model.parameters() if each.requires_grad]
        self._weights = [local_tensor(each).detach() for each in learning]
        self._averages = [each.clone() for each in self._weights]
        self._by_parameter = {
            id(each): average for each, average in zip(learning, self._averages, strict=True)
        }
        self._decay = decay
        self._average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]

    def of(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return the average of a parameter; None if it does not learn."""
        return self._by_parameter.get(id(parameter))

    @torch.no_grad()
    def update(self, unless: torch.Tensor | None = None) -> None:
        """Add the weights after a step, unless `unless` is 1 on the device; those of the first step
        begin the average."""
        if not self._averages:
            return
        if self.updates == 0:
            foreach_copy_(self._averages, self._weights)
        elif unless is not None:
            weight = (1 - unless) * (1 - self._decay)
            for average, now in zip(self._averages, self._weights, strict=True):
                average.lerp_(now, weight.to(average.dtype))
        else:
            self._average(self._averages, self._weights, self.updates)
        self.updates += 1

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Exchange the weights for their average inside the block."""
        if self.updates == 0:
            yield
            return
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for weight, average in zip(self._weights, self._averages, strict=True):
            before = weight.clone()
            weight.copy_(average)
            average.copy_(before)


def weight_average(
    decay: float | None, model: ParallelModel, sync: SyncSettings
) -> WeightAverage | None:
    """Return the average of a model's weights, if one is asked for.

    Raise if replicas differ by design, so that each would average other weights.
    """
    if decay is None:
        return None
    if sync.replicas_differ:
        raise PacelineError(
            f"Training(average={decay}) was given together with mode={sync.mode}, in which each"
            " replica has weights of its own",
            fix="use --sync allreduce, or leave average= out",
        )
    return WeightAverage(decay, model)
