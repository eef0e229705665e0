"""Scalars of the optimizer state, such as a parameter's step count, for a checkpoint."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from paceline.checkpoints.manifest import Scalar
from paceline.comm.host_copies import DelayedReading
from paceline.train.state.plain_values import scalar_dtype

_POLL_SECONDS = 0.001


def scalars_later(found: Mapping[str, Any]) -> Callable[[], dict[str, Scalar]]:
    """Note numbers and tensors without dimensions; return a function that returns them.

    Those of a device, where fused optimizers keep them, are copied in one piece. The function waits
    until they are there.
    """
    there = {
        name: value
        for name, value in found.items()
        if isinstance(value, torch.Tensor) and value.device.type != "cpu"
    }
    here = {
        name: Scalar(
            value=value.item() if isinstance(value, torch.Tensor) else value,
            dtype=scalar_dtype(value),
        )
        for name, value in found.items()
        if name not in there
    }
    if not there:
        return lambda: here
    mixed = len({value.dtype for value in there.values()}) > 1
    reading = DelayedReading(
        torch.stack([value.double() if mixed else value for value in there.values()])
    )
    dtypes = {name: scalar_dtype(value) for name, value in there.items()}

    def read() -> dict[str, Scalar]:
        while not reading.is_there:  # not a wait for the device, which may keep Python from running
            time.sleep(_POLL_SECONDS)
        numbers = zip(dtypes.items(), reading.values().tolist(), strict=True)
        return here | {name: Scalar(value=number, dtype=dtype) for (name, dtype), number in numbers}

    return read
