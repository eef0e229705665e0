"""State as JSON values, which load without running code."""

from typing import Any

import torch

from paceline.specs import PacelineError


def plain(value: Any, whose: str) -> Any:
    """Return a value as JSON types, or raise an error that names it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, list | tuple):
        return [plain(each, whose) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(each, f"{key} of {whose}") for key, each in value.items()}
    raise PacelineError(
        f"the state of {whose} contains a {type(value).__name__}, which a checkpoint cannot store:"
        " only numbers, strings, lists and dicts of them load without running code",
        fix="keep it out of the state, or turn checkpoints off with --save-every 0",
    )


def is_scalar(value: Any) -> bool:
    """Return whether a value is a number or a tensor without dimensions."""
    return isinstance(value, bool | int | float) or (
        isinstance(value, torch.Tensor) and value.ndim == 0
    )


def scalar_dtype(value: Any) -> str | None:
    """Return the type of a tensor's numbers; None for a plain number."""
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else None
