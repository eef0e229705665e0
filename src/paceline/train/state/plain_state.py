"""State dicts as JSON values and a list of tensors. Nothing is pickled."""

from typing import Any

import torch

from paceline.specs import PacelineError


def to_plain(state: Any, whose: str, tensors: list[torch.Tensor]) -> Any:
    """Return a state as JSON values; append its tensors, which the values refer to by number."""
    if isinstance(state, torch.Tensor):
        if hasattr(state, "to_local"):
            raise PacelineError(
                f"{whose} has a tensor that is sharded over workers",
                fix="keep whole tensors, or use Training(average=…) for an average of the weights",
            )
        tensors.append(state.detach())
        return {"tensor": len(tensors) - 1}
    if state is None or isinstance(state, bool | int | float | str):
        return state
    if isinstance(state, dict) and all(isinstance(key, str | int) for key in state):
        pairs = [[key, to_plain(each, whose, tensors)] for key, each in state.items()]
        return {"dict": pairs}
    if isinstance(state, list | tuple):
        kind = "list" if isinstance(state, list) else "tuple"
        return {kind: [to_plain(each, whose, tensors) for each in state]}
    raise PacelineError(
        f"{whose} has a {type(state).__name__} in its state, which a checkpoint cannot store: only"
        " tensors, numbers, strings, lists and dicts of them load without running code",
        fix="leave it out of state_dict(), or convert it there",
    )


def from_plain(plain: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the state that `to_plain` has converted."""
    if not isinstance(plain, dict):
        return plain
    ((kind, inside),) = plain.items()
    match kind:
        case "tensor":
            return tensors[inside]
        case "dict":
            return {key: from_plain(each, tensors) for key, each in inside}
        case "list":
            return [from_plain(each, tensors) for each in inside]
        case _:
            return tuple(from_plain(each, tensors) for each in inside)
