"""What the trainer asks of a way to agree, and what it gives it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from paceline.comm.torch_internals import foreach_copy_
from paceline.specs import Sync
from paceline.sync.lane import Lane
from paceline.sync.transport import Transport


@dataclass(frozen=True)
class Held:
    """A parameter and what this worker holds of it: all, a shard, or a slice."""

    name: str
    parameter: torch.nn.Parameter
    local: torch.Tensor
    """Shares its memory with the parameter."""


@dataclass(frozen=True)
class Bound:
    """What a mode works on."""

    sync: Sync
    held: Sequence[Held]
    optimizer: torch.optim.Optimizer
    transport: Transport
    """To the other replicas of what this worker holds."""
    lane: Lane
    bucket_bytes: int
    """Of gradients, to exchange at a time."""
    tell: Callable[[int, Sync, str], None]
    """Say that from a step on workers agree in another way, and why."""

    @property
    def learning(self) -> "list[Held]":
        """Those that are trained; the others are the same on all replicas for good."""
        return [each for each in self.held if each.parameter.requires_grad]


@dataclass(frozen=True)
class Kept:
    """A tensor that a mode keeps from step to step, of the form of what is held of a parameter."""

    kind: str
    """What it is: `anchor`, say."""
    of: Held
    tensor: torch.Tensor
    common: bool
    """Whether it is the same on all replicas."""


class Mode:
    """A way to agree; this one leaves it to the engine.

    Steps count from 1; each worker takes them all, in the same order.
    """

    replicas_differ = True
    """Whether what each replica saves of weights and of the optimizer's state is its own."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound

    def last_backward(self) -> AbstractContextManager[None]:
        """A block with the backward after which the gradients of a step are complete."""
        return nullcontext()

    def before_forward(self, step: int) -> None:
        """The step begins."""

    def after_backward(self, step: int) -> None:
        """This worker's gradients are complete."""

    def before_step(self, step: int) -> bool:
        """They are clipped, too; whether the worker is to update its weights with them itself."""
        del step
        return True

    def after_step(self, step: int) -> None:
        """The worker has updated its weights."""

    def consensus(self) -> list[torch.Tensor] | None:
        """What the replicas have in common, in the order of `Bound.held`; None where that is what
        each of them holds. All workers call this together."""
        return None

    def conclude(self) -> None:
        """The last step is done: come to one model on all workers, which call this together."""

    def drain(self) -> None:
        """Wait until nothing of this worker is on its way, and hold what is to be saved. All
        workers call this together."""

    def kept(self) -> Iterator[Kept]:
        """Tensors without which training could not go on as it would have."""
        return iter(())

    def numbers(self) -> dict[str, Any]:
        """Numbers and words without which it could not."""
        return {}

    def resuming(self, numbers: Mapping[str, Any]) -> None:
        """A checkpoint with these numbers is about to be read."""

    def restored(self, numbers: Mapping[str, Any], *, same_replicas: bool) -> None:
        """Weights, optimizer and what `kept` yields were restored; go on from there.

        Where the number of replicas has changed, every replica begins with the mean of all, and
        only what is common was restored.
        """

    def close(self) -> None:
        """Let go of what is left."""

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """A block in which every worker holds what the replicas have in common."""
        common = self.consensus()
        if common is None:
            yield
            return
        locals_ = [held.local for held in self.bound.held]
        own = [local.detach().clone() for local in locals_]
        with torch.no_grad():
            foreach_copy_(locals_, common)
        try:
            yield
        finally:
            with torch.no_grad():
                foreach_copy_(locals_, own)
