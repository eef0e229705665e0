"""What the trainer calls of a synchronization mode, and what it passes to it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.specs import SyncSettings

if TYPE_CHECKING:
    import torch

    from paceline.sync.flat import Held, Row
    from paceline.sync.lane import Lane
    from paceline.sync.transport import Transport


@dataclass(frozen=True)
class Bound:
    """What a hook works on."""

    held: "Sequence[Held]"
    """Every parameter that this worker holds, or its part of it."""
    optimizer: "torch.optim.Optimizer"
    transport: "Transport"
    """To the other replicas of what this worker holds."""
    lane: "Lane"
    bucket_bytes: int
    """Of gradients that are sent together."""
    report: Callable[[int, SyncSettings, str], None]
    """Records that replicas synchronize in another mode from a step on, and why."""

    @property
    def learning(self) -> "list[Held]":
        """The parameters that are trained; the others stay equal on all replicas."""
        return [each for each in self.held if each.parameter.requires_grad]

    def row(self) -> "Row":
        """Return the trained parameters as one row of numbers."""
        from paceline.sync.flat import Row

        return Row(tuple(self.learning))

    def in_order(self, rows: "Iterable[tuple[Row, torch.Tensor]]") -> "list[torch.Tensor]":
        """Return rows as tensors in the order of `held`; parameters in no row are as they are."""
        from paceline.sync.flat import in_order

        return in_order(self.held, rows)

    def load(self, tensors: "Sequence[torch.Tensor]") -> None:
        """Copy tensors, in the order of `held`, into the weights."""
        import torch

        from paceline.comm.torch_internals import foreach_copy_

        with torch.no_grad():
            foreach_copy_([each.local for each in self.held], list(tensors))


@dataclass(frozen=True)
class Kept:
    """A tensor that a hook keeps from step to step, in the shape of its part of a parameter."""

    kind: str
    """What it is: `anchor`, say."""
    of: "Held"
    tensor: "torch.Tensor"
    common: bool
    """Whether it is equal on all replicas."""


class Hook:
    """The part of a synchronization mode that trains. This one sends nothing.

    Steps count from 1; each worker takes them all, in the same order.
    """

    replicas_differ = True
    """Whether each replica saves weights and optimizer state of its own."""

    def __init__(self, settings: SyncSettings, bound: Bound) -> None:
        self.settings: SyncSettings = settings
        self.bound = bound

    def last_backward(self) -> AbstractContextManager[None]:
        """A block with the backward that completes the gradients of a step."""
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
        """Return the weights that the replicas share, in the order of `Bound.held`; None where
        those are the weights of each. All workers call this together."""
        return None

    def conclude(self) -> None:
        """Called after the last step: leave one model on all workers, which call this together."""

    def drain(self) -> None:
        """Wait until nothing of this worker is in flight, and hold the state to save. All workers
        call this together."""

    def kept(self) -> Iterator[Kept]:
        """Yield the tensors that a checkpoint needs beside weights and optimizer state."""
        return iter(())

    def numbers(self) -> dict[str, Any]:
        """Return the plain values that a checkpoint needs, as JSON has them."""
        return {}

    def resuming(self, numbers: Mapping[str, Any]) -> None:
        """Called before a checkpoint with these `numbers` is read."""

    def restored(self, numbers: Mapping[str, Any], *, same_replicas: bool) -> None:
        """Called when weights, optimizer and the tensors of `kept` are restored.

        On another number of replicas every replica begins with the mean of all, and only common
        tensors were restored.
        """

    def close(self) -> None:
        """Release what the hook holds."""

    @contextmanager
    def shared_weights(self) -> Iterator[None]:
        """A block in which every worker holds the weights that the replicas share."""
        common = self.consensus()
        if common is None:
            yield
            return
        own = [each.local.detach().clone() for each in self.bound.held]
        self.bound.load(common)
        try:
            yield
        finally:
            self.bound.load(own)


class EngineHook(Hook):
    """PyTorch averages the gradients in backward, or there is one replica only."""

    replicas_differ = False
