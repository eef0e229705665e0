"""The user's own objects in checkpoints: their state dicts, equal on all workers.

A new process loads an object's state when the user's loop hands the object over. A survivor of a
regroup keeps its own, which has seen all steps of its loop: steps that the trainer repeats are not
repeated in the user's loop.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from paceline.checkpoints.manifest import Contents
from paceline.checkpoints.saved_state import SavedState
from paceline.checkpoints.tensor_extent import Extent
from paceline.checkpoints.tensor_loading import fill
from paceline.specs import PacelineError
from paceline.train.state.plain_state import from_plain, to_plain

_PREFIX = "kept/"
_OWN = "paceline/"
"""Prefix of the names of Paceline's own objects."""


class Stateful(Protocol):
    """An object whose state can be saved and loaded."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Load a state."""


class KeptObjects:
    """The objects that the user's loop keeps on this worker, by name."""

    def __init__(self) -> None:
        self._objects: dict[str, Stateful] = {}
        self._with_weights: dict[str, Stateful] = {}
        """Paceline's own objects, whose state belongs to the weights."""
        self._restored: dict[str, Any] = {}
        """Restored states whose objects the loop has not handed over yet."""
        self._incoming: dict[str, torch.Tensor] = {}
        """Tensors of another worker's state, while they are received."""

    @property
    def any_of_user(self) -> bool:
        """Whether the user's loop keeps an object."""
        return bool(self._objects)

    def keep(self, name: str, kept: Stateful) -> None:
        """Add an object, and load its state if one was restored."""
        if name in self._objects or name.startswith(_OWN):
            raise PacelineError(
                f"trainer.keep({name!r}, …): the name is taken", fix="give each object its own name"
            )
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(kept, method, None)):
                raise PacelineError(
                    f"trainer.keep({name!r}, …) got a {type(kept).__name__} without {method}()",
                    fix="keep an object with state_dict() and load_state_dict()",
                )
        self._objects[name] = kept
        if name in self._restored:
            kept.load_state_dict(self._restored.pop(name))

    def keep_with_weights(self, name: str, kept: Stateful) -> None:
        """Add an object of Paceline's own, which is restored whenever the weights are."""
        self._with_weights[f"{_OWN}{name}"] = kept

    def saved(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Return the states of all objects as JSON values, and their tensors by name."""
        if self._incoming:
            return {}, self._incoming
        objects = self._objects | self._with_weights
        states = self._restored | {name: kept.state_dict() for name, kept in objects.items()}
        tensors: list[torch.Tensor] = []
        values = {
            name: to_plain(state, f"trainer.keep({name!r}, …)", tensors)
            for name, state in states.items()
        }
        return values, {f"{_PREFIX}{number}": each for number, each in enumerate(tensors)}

    def restore(self, saved: SavedState) -> None:
        """Load the states of a checkpoint, for objects that are handed over later."""
        self.prepare(saved.manifest, torch.device("cpu"))
        pieces = [
            piece
            for name, tensor in self._incoming.items()
            for piece in Extent.everything(tuple(tensor.shape)).pieces(name, tensor)
        ]
        fill(pieces, saved)
        self.received(saved.manifest)

    def prepare(self, contents: Contents, device: torch.device) -> None:
        """Allocate the tensors of a state, to be filled before `received`."""
        self._incoming = {
            name: torch.empty(each.shape, dtype=getattr(torch, each.dtype), device=device)
            for name, each in contents.tensors.items()
            if name.startswith(_PREFIX)
        }

    def received(self, contents: Contents) -> None:
        """Take over a state whose tensors are filled."""
        tensors = [self._incoming[f"{_PREFIX}{each}"] for each in range(len(self._incoming))]
        self._incoming = {}
        for name, plain in contents.values.get("kept", {}).items():
            if name in self._with_weights:
                self._with_weights[name].load_state_dict(from_plain(plain, tensors))
            elif name not in self._objects and not name.startswith(_OWN):
                self._restored[name] = from_plain(plain, tensors)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors to send, or to receive after `prepare`."""
        yield from self.saved()[1].items()
