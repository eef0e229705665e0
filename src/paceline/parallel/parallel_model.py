"""The interface between the trainer and a model under any layout."""

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
from paceline.parallel.sample_trial import SampleTrial
from paceline.parallel.step.part_norms import PartNorms
from paceline.parallel.step.step_clock import Clock
from paceline.specs import Layout, SyncSettings
from paceline.user.training import Measure

if TYPE_CHECKING:
    from paceline.parallel.slices.sliced_model import Sliced

Minimize = Callable[[torch.Tensor, int], torch.Tensor]
"""Map a micro-batch's loss and its index to the value that backward starts from."""

LastBackward = Callable[[], AbstractContextManager[None]]
"""A context manager around the last backward, in which gradients become final layer by layer."""

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The types of precisions below fp32."""


@dataclass(frozen=True)
class ParallelContext:
    """The inputs of building a model under a layout."""

    layout: Layout
    groups: Groups
    loss: Measure
    data_group: "dist.ProcessGroup | None"
    """The workers that the global batch is divided among."""
    sync: SyncSettings
    """The synchronization mode's settings."""
    clock: Clock
    """Measures the step breakdown."""
    trial: SampleTrial
    """What a few samples showed about the model."""
    micro_batches: int = 1
    """Number of micro-batches per step."""


@dataclass(frozen=True)
class PreparedModel:
    """A model on this worker: the user's module and the changes made to it in place."""

    model: nn.Module
    norms: BatchNorms
    sliced: "Sliced | None" = None


@dataclass(frozen=True)
class StateTensor:
    """A parameter or buffer, and the extent of this worker's part in the full tensor."""

    name: str
    tensor: torch.Tensor
    in_replica: Extent
    """The extent within this worker's replica of the model."""
    replicas: int
    replica: int
    writes: bool = True
    """False for a tensor that another pipeline stage writes."""

    @property
    def extent(self) -> Extent:
        """The extent if all replicas hold the same values."""
        return self.in_replica.among(self.replicas, self.replica)


class ParallelModel(Protocol):
    """A model under a layout: this worker's part of it."""

    model: nn.Module
    """The user's module, with this worker's part of the weights."""

    size: int
    """Number of parameters of the whole model."""

    data_group: "dist.ProcessGroup | None"
    """The workers that the global batch is divided among."""

    trial: SampleTrial
    """What a few samples showed about the model, before training."""

    shares_weights: bool
    """Whether several pipeline stages hold the same weight."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that this worker updates."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield these parameters with their names in the user's model."""

    def parts(self, batch: Batch, largest_local_batch: int) -> Sequence[Batch]:
        """Split a local batch into micro-batches, the same number on every worker."""

    def learn(
        self, parts: Sequence[Batch], minimize: Minimize, last_backward: LastBackward = nullcontext
    ) -> list[torch.Tensor]:
        """Accumulate the gradients of all micro-batches in the parameters and return their losses;
        return no losses on a worker without the last stage."""

    def measure(self, parts: Sequence[Batch], measures: Sequence[Measure]) -> list[torch.Tensor]:
        """Return one vector of measures per micro-batch; none without the last stage."""

    def squared_norm(self) -> torch.Tensor:
        """Return the squared gradient norm over all parameters, the same on every worker."""

    def counted(self) -> Sequence[nn.Parameter]:
        """Return the parameters that this worker adds to a norm over all of them."""

    def part_norms(self) -> PartNorms | None:
        """Return what sees the gradients of a batch's parts inside its block, if anything can."""

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every weight of the whole model with its name; a collective call."""

    def names(self) -> dict[str, str]:
        """Map every name in the whole model's state dict to the first name of its tensor."""

    def stored(self) -> Iterator[StateTensor]:
        """Yield the parameters and buffers that this worker holds and a checkpoint stores."""

    def settle(self) -> None:
        """Make the values that may differ between replicas, such as running statistics, equal."""

    def reshard(self) -> None:
        """Free weights that were gathered from shards, before the shards are changed."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a context manager that settles the model and puts it in evaluation mode."""

    def close(self) -> None:
        """Release the process groups."""


def state_dict_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each parameter once, then the buffers that belong to the model's state dict."""
    yield from model.named_parameters()
    names = model.state_dict(keep_vars=True).keys()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in names)


def aliases(model: nn.Module) -> dict[str, str]:
    """Map every name of every parameter to the parameter's first name."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(parameter)] for name, parameter in every}


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Put models in evaluation mode inside the block; restore every layer's mode afterwards."""
    before = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def autocast(layout: Layout, device: torch.device) -> AbstractContextManager[Any]:
    """Return a context manager for the layout's precision; run forward and loss inside it."""
    dtype = DTYPES.get(layout.precision)
    return torch.autocast(device.type, dtype=dtype) if dtype else nullcontext()
