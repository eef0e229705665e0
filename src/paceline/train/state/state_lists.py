"""Lists in an optimizer's state, such as L-BFGS's history, as separate named values."""

import re
from collections.abc import Mapping
from typing import Any

_ELEMENT = re.compile(r"(.+)\[(\d*)\]")


def flattened(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter's state with each list as its length, `key[]`, and elements, `key[0]`.

    Elements that are None are left out.
    """
    flat: dict[str, Any] = {}
    for key, value in state.items():
        if not isinstance(value, list):
            flat[key] = value
            continue
        flat[f"{key}[]"] = len(value)
        flat |= {f"{key}[{n}]": each for n, each in enumerate(value) if each is not None}
    return flat


def with_lists(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flattened state with its lists."""
    state: dict[str, Any] = {}
    elements: list[tuple[str, int, Any]] = []
    for key, value in flat.items():
        found = _ELEMENT.fullmatch(key)
        if found is None:
            state[key] = value
        elif found[2]:
            elements.append((found[1], int(found[2]), value))
        else:
            state[found[1]] = [None] * value
    for key, number, value in elements:
        state[key][number] = value
    return state
