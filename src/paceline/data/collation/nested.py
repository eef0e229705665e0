"""Nested tensors of a dataset: tuples, lists, mappings and dataclasses of any depth."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

_PLAIN = (str, bytes, int, float, type(None))


def map_tensors(
    value: Any,
    change: Callable[[torch.Tensor], Any],
    other: Callable[[Any], Any] = lambda leaf: leaf,
) -> Any:
    """Return the same structure with every tensor changed.

    `other` changes the remaining leaves: lists and tuples of plain values, and any other object.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):  # most often; the next questions take longer
        return _map_items(value, change, other)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value)(
            **{name: map_tensors(item, change, other) for name, item in fields.items()}
        )
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change, other) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change, other) for item in value))
    return _map_items(value, change, other) if isinstance(value, list | tuple) else other(value)


def _map_items(
    value: "list[Any] | tuple[Any, ...]",
    change: Callable[[torch.Tensor], Any],
    other: Callable[[Any], Any],
) -> Any:
    if all(isinstance(item, _PLAIN) for item in value):
        return other(value)
    return type(value)([map_tensors(item, change, other) for item in value])


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a nested structure."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, note)
    return iter(found)
