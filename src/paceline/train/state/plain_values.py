"""What of an optimizer's or a schedule's state can be kept without running code to read it."""

from typing import Any

import torch

from paceline.specs import PacelineError


def plain(value: Any, whose: str) -> Any:
    """A nest of what JSON can hold; anything else is refused by name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, list | tuple):
        return [plain(each, whose) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(each, f"{key} of {whose}") for key, each in value.items()}
    raise PacelineError(
        f"{whose} has a {type(value).__name__} in its state, which a checkpoint cannot keep:"
        " only numbers, words and lists of them can be read again without running code",
        fix="keep it out of the state, or switch saving off with --save-every 0",
    )
