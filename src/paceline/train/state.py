"""All that a training needs to go on: weights, optimizer, schedule, scale of the loss.

Tensors are told as pieces of whole ones, so that another layout can take them up; the rest is
numbers and words that JSON can hold. Random numbers and the order of the samples are functions of
the step and need not be kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from paceline.recover.loading import fill
from paceline.recover.manifest import Manifest, Scalar
from paceline.recover.pieces import Extent, Piece
from paceline.recover.storage import Storage
from paceline.specs import PacelineError
from paceline.train.layouts.arranged import Arranged, Stored
from paceline.train.parts import held
from paceline.train.scaling import LossScaling


@dataclass
class TrainedState:
    """The state of one worker's part of a training."""

    arranged: Arranged
    optimizer: torch.optim.Optimizer
    schedule: LRScheduler | None
    scaling: LossScaling

    @cached_property
    def _stored(self) -> list[Stored]:
        """What this worker holds; asked for once, since training stands still meanwhile."""
        return list(self.arranged.stored())

    def sections(self) -> dict[str, list[Piece]]:
        """What this worker writes, by what tends to change together."""
        sections: dict[str, list[Piece]] = {"frozen": [], "model": [], "optimizer": []}
        for stored in self._stored:
            if stored.writes:
                section = "model" if stored.tensor.requires_grad else "frozen"
                local = held(stored.tensor).detach()
                sections[section] += stored.extent.written(f"model/{stored.name}", local)
        for name, tensor, extent, writes in self._optimizer_tensors():
            if writes:
                sections["optimizer"] += extent.written(name, tensor)
        return {section: pieces for section, pieces in sections.items() if pieces}

    def scalars(self) -> dict[str, Scalar]:
        """Numbers of the optimizer's state, such as how many steps a parameter has seen."""
        return {
            f"optimizer/{stored.name}/{key}": Scalar(
                value=value.item() if isinstance(value, torch.Tensor) else value,
                dtype=_dtype(value),
            )
            for stored, own in self._optimizer_states()
            for key, value in own.items()
            if _is_scalar(value)
        }

    def values(self) -> dict[str, Any]:
        """What is neither a tensor nor a number of one parameter."""
        groups = [
            {key: value for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]
        return {
            "groups": _plain(groups, "the optimizer"),
            "schedule": _plain(self.schedule.state_dict() if self.schedule else {}, "the schedule"),
            "scaling": self.scaling.state(),
        }

    def restore(self, manifest: Manifest, storage: Storage) -> None:
        """Take up the state of a checkpoint, whatever layout wrote it."""
        pieces: list[Piece] = []
        for stored in self._stored:
            local = held(stored.tensor).detach()
            pieces += stored.extent.held(f"model/{stored.name}", local)
        self._prepare_optimizer(manifest)
        for name, tensor, extent, _ in self._optimizer_tensors():
            pieces += extent.held(name, tensor)
        fill(pieces, manifest, storage)
        if self.schedule is not None:
            self.schedule.load_state_dict(manifest.values["schedule"])
        self.scaling.restore(manifest.values["scaling"])

    def _optimizer_states(self) -> Iterator[tuple[Stored, dict[str, Any]]]:
        for stored in self._stored:
            if stored.tensor in self.optimizer.state:
                yield stored, self.optimizer.state[stored.tensor]

    def _optimizer_tensors(self) -> Iterator[tuple[str, torch.Tensor, Extent, bool]]:
        for stored, own in self._optimizer_states():
            for key, value in own.items():
                if isinstance(value, torch.Tensor) and not _is_scalar(value):
                    extent = self._extent_of_state(stored, key, value)
                    name = f"optimizer/{stored.name}/{key}"
                    yield name, held(value).detach(), extent, stored.writes

    def _extent_of_state(self, stored: Stored, key: str, value: torch.Tensor) -> Extent:
        extent = stored.extent
        if value.shape == stored.tensor.shape:
            return extent
        if extent.whole == tuple(stored.tensor.shape) and not hasattr(stored.tensor, "to_local"):
            # Held as a whole, a parameter may have state of any shape.
            return Extent.everything(tuple(value.shape)).among(extent.copies, extent.copy)
        raise PacelineError(
            f"{type(self.optimizer).__name__} keeps {key} of shape {list(value.shape)} for"
            f" {stored.name}, of which this worker holds {list(stored.tensor.shape)}: which part of"
            " the whole that belongs to is not known, so it cannot be saved",
            fix="use another optimizer, or a layout without shards and tensor",
        )

    def _prepare_optimizer(self, manifest: Manifest) -> None:
        """Make room for the optimizer's state, which it makes itself only in its first step."""
        groups = manifest.values["groups"]
        if len(groups) != len(self.optimizer.param_groups):
            raise PacelineError(
                f"the optimizer has {len(self.optimizer.param_groups)} groups of parameters here,"
                f" but {len(groups)} in the checkpoint of step {manifest.step}",
                fix="resume with the optimizer that the run was started with, or start a new run",
            )
        keys = _keys_by_parameter(manifest)
        state: dict[int, dict[str, Any]] = {}
        numbers = {
            id(parameter): number
            for number, parameter in enumerate(
                each for group in self.optimizer.param_groups for each in group["params"]
            )
        }
        for stored in self._stored:
            if id(stored.tensor) in numbers and stored.name in keys:
                state[numbers[id(stored.tensor)]] = {
                    key: _room(stored, manifest, key) for key in sorted(keys[stored.name])
                }
        begin = 0
        described = []
        for own, kept in zip(self.optimizer.param_groups, groups, strict=True):
            end = begin + len(own["params"])
            described.append(kept | {"params": list(range(begin, end))})
            begin = end
        self.optimizer.load_state_dict({"state": state, "param_groups": described})


def _keys_by_parameter(manifest: Manifest) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in (*manifest.tensors, *manifest.scalars):
        section, _, rest = name.partition("/")
        if section == "optimizer":
            parameter, _, key = rest.rpartition("/")
            found.setdefault(parameter, set()).add(key)
    return found


def _room(stored: Stored, manifest: Manifest, key: str) -> Any:
    """A number of an optimizer's state, or an empty tensor for one of its tensors."""
    name = f"optimizer/{stored.name}/{key}"
    if name in manifest.scalars:
        scalar = manifest.scalars[name]
        if scalar.dtype is None:
            return scalar.value
        return torch.tensor(scalar.value, dtype=getattr(torch, scalar.dtype))
    kept = manifest.tensors[name]
    dtype = getattr(torch, kept.dtype)
    if kept.shape == stored.extent.whole:
        return torch.empty_like(stored.tensor.detach(), dtype=dtype)
    return torch.empty(kept.shape, dtype=dtype, device=stored.tensor.device)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (
        isinstance(value, torch.Tensor) and value.ndim == 0
    )


def _dtype(value: Any) -> str | None:
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else None


def _plain(value: Any, whose: str) -> Any:
    """A nest of what JSON can hold; anything else is refused by name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(each, whose) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(each, f"{key} of {whose}") for key, each in value.items()}
    raise PacelineError(
        f"{whose} has a {type(value).__name__} in its state, which a checkpoint cannot keep:"
        " only numbers, words and lists of them can be read again without running code",
        fix="keep it out of the state, or switch saving off with --save-every 0",
    )
