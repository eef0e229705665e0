"""What the trainer asks of a model under any layout."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from paceline.checkpoints.tensor_extent import Extent
from paceline.comm.groups import Groups
from paceline.data.loader import Batch
from paceline.parallel.batch_norm import BatchNorms
from paceline.parallel.step.step_clock import Clock
from paceline.specs import Layout, SyncSettings
from paceline.user.training import Measure

if TYPE_CHECKING:
    from paceline.parallel.slices.sliced_model import Sliced

Minimise = Callable[[torch.Tensor, int], torch.Tensor]
"""From the loss of a micro-batch and its number to what its backward begins with."""

LastBackward = Callable[[], AbstractContextManager[None]]
"""A block with the backward after which gradients are complete, layer by layer."""

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Setting:
    """What a model is arranged in."""

    layout: Layout
    groups: Groups
    loss: Measure
    data_group: "dist.ProcessGroup | None"
    """The workers that have the other parts of this worker's batches."""
    sync: SyncSettings
    """How replicas agree."""
    clock: Clock
    """Is told what time goes to."""


@dataclass(frozen=True)
class Built:
    """A model on this worker: the user's module, and what was changed about it in place."""

    model: nn.Module
    norms: BatchNorms
    sliced: "Sliced | None" = None


@dataclass(frozen=True)
class Stored:
    """A parameter or a buffer, and where what this worker holds of it lies in the whole."""

    name: str
    tensor: torch.Tensor
    in_copy: Extent
    """In the copy of the model that this worker has a part of."""
    replicas: int
    replica: int
    writes: bool = True
    """False for what another stage writes as well."""

    @property
    def extent(self) -> Extent:
        """Where it lies, if all replicas hold the same."""
        return self.in_copy.among(self.replicas, self.replica)


class Arranged(Protocol):
    """A model that stands on the workers as a layout says."""

    model: nn.Module
    """The user's module, with what this worker holds of its weights."""

    size: int
    """Parameters of the whole model."""

    shares_weights: bool
    """Whether some weight stands on several stages of a pipeline."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """What this worker updates."""

    def parts(self, batch: Batch, largest_share: int) -> Sequence[Batch]:
        """A share of a batch as the micro-batches that it passes in, as many on every worker."""

    def learn(
        self, parts: Sequence[Batch], minimise: Minimise, last_backward: LastBackward = nullcontext
    ) -> list[torch.Tensor]:
        """Leave the gradients of all parts together in the parameters, and return their losses;
        none on a worker that has only earlier stages."""

    def measure(self, parts: Sequence[Batch], measures: Sequence[Measure]) -> list[torch.Tensor]:
        """The measures of each part, one vector for each; none on a worker of earlier stages."""

    def squared_norm(self) -> torch.Tensor:
        """The squared norm of the gradient over all parameters of the model, the same on all."""

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every weight of the whole model by its name, one after the other; all workers join in."""

    def stored(self) -> Iterator[Stored]:
        """The parameters and buffers that this worker holds and a checkpoint keeps."""

    def settle(self) -> None:
        """Make what copies may differ in, such as running statistics, the same on all."""

    def evaluating(self) -> AbstractContextManager[None]:
        """A block in which the model is as it will be when it is used."""

    def close(self) -> None:
        """Let go of the process groups."""


def kept_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters, each once, and the buffers that belong to a model's state."""
    yield from model.named_parameters()
    names = model.state_dict(keep_vars=True).keys()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in names)


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """A block in which models are in evaluation mode; every layer is as it was afterwards."""
    before = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def autocast(layout: Layout, device: torch.device) -> AbstractContextManager[Any]:
    """A block that computes in the layout's precision; forward and loss belong inside."""
    dtype = _DTYPES.get(layout.precision)
    return torch.autocast(device.type, dtype=dtype) if dtype else nullcontext()


def micro_batches(layout: Layout, largest_share: int) -> int:
    """Into how many micro-batches a share passes, the same on every worker.

    A pipeline takes at least four for each of its workers, which keeps them idle for less than a
    fifth of the time, and a whole number of rounds.
    """
    if layout.micro_batch is not None:
        count = -(-largest_share // layout.micro_batch)
    else:
        count = 1 if layout.pipeline == 1 else min(largest_share, 4 * layout.pipeline)
    return -(-max(count, layout.pipeline) // layout.pipeline) * layout.pipeline
