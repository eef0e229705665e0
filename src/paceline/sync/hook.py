"""The interface between the trainer and a synchronization mode."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.specs import SyncSettings

if TYPE_CHECKING:
    import torch

    from paceline.sync.buckets import Bucket, LocalParameter
    from paceline.sync.lane import Lane
    from paceline.sync.transport import Transport

Settings = TypeVar("Settings", bound=SyncSettings)


@dataclass(frozen=True)
class HookContext:
    """The parameters, optimizer and communication that a hook works with."""

    parameters: "Sequence[LocalParameter]"
    """Every parameter that this worker holds, or its part of it."""
    optimizer: "torch.optim.Optimizer"
    transport: "Transport"
    """Communication with the other replicas of this worker's part."""
    lane: "Lane"
    bucket_bytes: int
    """Bytes of gradients that are sent together."""
    report: Callable[[int, SyncSettings, str], None]
    """Record that replicas use another mode from a step on, and why."""

    def for_optimizer(self, settings: Settings) -> Settings:
        """Return settings with those that depend on the optimizer."""
        import torch

        return settings.for_optimizer(adaptive=not isinstance(self.optimizer, torch.optim.SGD))

    @property
    def learning(self) -> "list[LocalParameter]":
        """The trained parameters; the others stay equal on all replicas."""
        return [each for each in self.parameters if each.parameter.requires_grad]

    def bucket(self) -> "Bucket":
        """Return the trained parameters as one bucket."""
        from paceline.sync.buckets import Bucket

        return Bucket(tuple(self.learning))

    def in_order(self, buckets: "Iterable[tuple[Bucket, torch.Tensor]]") -> "list[torch.Tensor]":
        """Return flat tensors as tensors in the order of `parameters`."""
        from paceline.sync.buckets import in_order

        return in_order(self.parameters, buckets)

    def load(self, tensors: "Sequence[torch.Tensor]") -> None:
        """Copy tensors, in the order of `parameters`, into the weights."""
        import torch

        from paceline.comm.torch_internals import foreach_copy_

        with torch.no_grad():
            foreach_copy_([each.local for each in self.parameters], list(tensors))


@dataclass(frozen=True)
class SyncTensor:
    """A tensor that a hook keeps between steps, in the shape of its part of a parameter."""

    kind: str
    """Its kind, such as `anchor`."""
    of: "LocalParameter"
    tensor: "torch.Tensor"
    common: bool
    """Whether it is equal on all replicas."""


class Hook:
    """The training part of a synchronization mode. This base class sends nothing.

    Steps count from 1; each worker takes them all, in the same order.
    """

    replicas_differ = True
    """Whether each replica saves its own weights and optimizer state."""

    def __init__(self, settings: SyncSettings, context: HookContext) -> None:
        self.settings: SyncSettings = settings
        self.context = context

    def last_backward(self) -> AbstractContextManager[None]:
        """Return a context manager for the backward that completes a step's gradients."""
        return nullcontext()

    def before_forward(self, step: int) -> None:
        """Called when a step begins."""

    def after_backward(self, step: int) -> None:
        """Called when this worker's gradients are complete."""

    def before_step(self, step: int) -> bool:
        """Called after clipping; return whether the worker's own optimizer updates the weights."""
        del step
        return True

    def after_step(self, step: int) -> None:
        """Called when the worker has updated its weights."""

    def consensus(self) -> "list[torch.Tensor] | None":
        """Return the weights that the replicas share, in the order of `context.parameters`; None
        if these are the model's weights. A collective call."""
        return None

    def conclude(self) -> None:
        """Leave one model on all workers, after the last step; a collective call."""

    def drain(self) -> None:
        """Wait until nothing is in flight, and hold the state to save; a collective call."""

    def saved_tensors(self) -> Iterator[SyncTensor]:
        """Yield the tensors that a checkpoint needs besides weights and optimizer state."""
        return iter(())

    def numbers(self) -> dict[str, Any]:
        """Return the plain values that a checkpoint needs, as JSON types."""
        return {}

    def resuming(self, numbers: Mapping[str, Any]) -> None:
        """Called before a checkpoint with these `numbers` is read."""

    def restored(self, numbers: Mapping[str, Any], *, same_replicas: bool) -> None:
        """Called when weights, optimizer and the tensors of `saved_tensors` are restored.

        With another number of replicas, every replica begins with the mean of all, and only common
        tensors are restored.
        """

    def close(self) -> None:
        """Release the hook's resources."""

    @contextmanager
    def shared_weights(self) -> Iterator[None]:
        """Load the weights that the replicas share inside the block, then restore this worker's."""
        common = self.consensus()
        if common is None:
            yield
            return
        own = [each.local.detach().clone() for each in self.context.parameters]
        self.context.load(common)
        try:
            yield
        finally:
            self.context.load(own)


class EngineHook(Hook):
    """PyTorch averages the gradients in backward, or there is only one replica."""

    replicas_differ = False
