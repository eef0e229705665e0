"""Rows of logged metrics, packed into one tensor to be summed over the workers."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from paceline.comm.host_copies import queued_to
from paceline.specs import PacelineError

NAME_BITS = 16
"""Bits of the hash of the names: workers that log different names are found, but for one in 65,536
cases, in which the sum fails instead."""
_NAME = re.compile(r"[A-Za-z_][\w./-]{0,79}", re.ASCII)

Names = tuple[str, ...]


@dataclass(frozen=True)
class LoggedRow:
    """The metrics that one worker logged between two steps."""

    weight: float
    """Samples in the local batch of the step before."""
    values: Mapping[str, float | torch.Tensor]


NOTHING = LoggedRow(0.0, {})


def check_metric_name(name: str) -> None:
    """Raise if a metric's name is one that listeners cannot show."""
    if not _NAME.fullmatch(name):
        raise PacelineError(
            f"{name!r} cannot be the name of a metric",
            fix="use ASCII letters, digits, _ . / and -, beginning with a letter",
        )


def name_bits(names: Names) -> list[float]:
    """Return the bits of the names' hash; zeros without names."""
    if not names:
        return [0.0] * NAME_BITS
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=NAME_BITS // 8).digest()
    number = int.from_bytes(digest, "little")
    return [float(number >> bit & 1) for bit in range(NAME_BITS)]


def check_same_names(summed: Sequence[float], workers: int, names: Names) -> None:
    """Raise on all workers if one has logged other names: `summed` bits differ from all or none."""
    if any(each not in (0, workers) for each in summed):
        mine = f"this one: {', '.join(names)}" if names else "this one none"
        raise PacelineError(
            f"the workers log different metrics ({mine}), but trainer.log averages over them",
            fix="log the same names on every worker, not only on worker 0",
        )


def packed_rows(rows: Sequence[LoggedRow], names: Names, device: torch.device) -> torch.Tensor:
    """Return the values times their weights, and the weights, to be summed over the workers."""
    given = [
        [(row.values[name], row.weight) if name in row.values else (0.0, 0.0) for name in names]
        for row in rows
    ]
    weights = queued_to(device, torch.tensor([[weight for _, weight in row] for row in given]))
    cells = [value for row in given for value, _ in row]
    plain = [0.0 if isinstance(cell, torch.Tensor) else float(cell) for cell in cells]
    values = queued_to(device, torch.tensor(plain))
    at = [place for place, cell in enumerate(cells) if isinstance(cell, torch.Tensor)]
    if at:
        tensors = [
            cell.to(device, non_blocking=True) for cell in cells if isinstance(cell, torch.Tensor)
        ]
        values[queued_to(device, torch.tensor(at))] = torch.stack(tensors)
    values = torch.where(weights.flatten() > 0, values, 0.0)
    return torch.cat([values * weights.flatten(), weights.flatten()])


def means_of(summed: torch.Tensor, rows: int, names: Names) -> list[dict[str, float]]:
    """Return each row's means over the workers, without names that no worker logged there."""
    values, weights = summed.view(2, rows, len(names)).tolist()
    return [
        {name: value / weight for name, value, weight in zip(names, *row, strict=True) if weight}
        for row in zip(values, weights, strict=True)
    ]


def scalar(name: str, value: float | torch.Tensor) -> float | torch.Tensor:
    """Return a metric's value as a float or a float32 tensor of its own."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        # A copy: the user may go on to change it, as a running sum.
        return value.detach().reshape(()).to(torch.float32, copy=True)
    if isinstance(value, int | float):
        return float(value)
    kind = (
        f"a tensor of shape {list(value.shape)}"
        if isinstance(value, torch.Tensor)
        else f"of type {type(value).__name__}"
    )
    raise PacelineError(
        f"trainer.log({name}=…) is {kind}, not one number", fix="log a mean, or another scalar"
    )
