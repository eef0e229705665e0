"""Messages between workers and parameter servers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.comm.group_errors import PeerLost

PUSH, ANSWER = 1, 2
"""Tags of a worker's gradients and a server's answers, between the same two workers."""

GOODBYE = 0
"""Sent in place of a step when the worker signs off."""

_ALL_PRESENT, _WORKER_LOST = 0.0, 1.0


@dataclass(frozen=True)
class Push:
    """A worker's gradient for a part, with its optimizer's settings at this step."""

    step: int
    settings: Sequence[float]
    gradient: torch.Tensor
    """As one row."""

    def packed(self) -> torch.Tensor:
        """Return the message, of the same length in every step."""
        numbers = torch.tensor([self.step, *self.settings], dtype=torch.float64)
        return torch.cat([numbers.view(torch.uint8), self.gradient.cpu().view(torch.uint8)])

    @classmethod
    def unpacked(cls, message: torch.Tensor, like: torch.Tensor) -> "Push":
        """Read a message, sharing its memory; `like` is a row of the same shape."""
        begin = len(message) - like.nbytes
        step, *settings = message[:begin].view(torch.float64).tolist()
        return cls(int(step), settings, message[begin:].view(like.dtype))


def answer(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return weights as one row, followed by the mark that all workers are present."""
    there = weights[0].new_tensor(_ALL_PRESENT).reshape(1)
    return torch.cat([*(each.detach().flatten() for each in weights), there])


def room_for_answer(row: torch.Tensor) -> torch.Tensor:
    """Return a buffer for a row of weights and its mark, which says "lost" until it is received."""
    return row.new_full((len(row) + 1,), _WORKER_LOST)


def weights_in(answered: torch.Tensor) -> torch.Tensor:
    """Return the weights of a server's answer."""
    if answered[-1] == _WORKER_LOST:
        raise PeerLost("a parameter server lost a worker")
    return answered[:-1]


def packed_states(states: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    """Pack optimizer state, in a checkpoint's form, into bytes: a description, then tensors."""
    tensors: list[torch.Tensor] = []
    described: list[dict[str, Any]] = [{} for _ in states]
    for state, description in zip(states, described, strict=True):
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                dtype = str(value.dtype).removeprefix("torch.")
                description[key] = {"dtype": dtype, "shape": list(value.shape)}
                tensors.append(value)
            elif isinstance(value, bool | int | float):
                description[key] = value
    words = json.dumps(described).encode()
    return torch.cat(
        [
            torch.tensor([len(words)]).view(torch.uint8),
            torch.frombuffer(bytearray(words), dtype=torch.uint8),
            *(tensor.detach().contiguous().flatten().view(torch.uint8) for tensor in tensors),
        ]
    )


def unpacked_states(message: torch.Tensor) -> list[dict[str, Any]]:
    """Read packed optimizer state."""
    begin = 8 + int(message[:8].view(torch.int64))
    states: list[dict[str, Any]] = json.loads(bytes(message[8:begin].tolist()))
    for state in states:
        for key, value in state.items():
            if isinstance(value, dict):
                dtype, shape = getattr(torch, value["dtype"]), value["shape"]
                end = begin + torch.Size(shape).numel() * dtype.itemsize
                # A copy, because tensors may be unaligned in the message.
                state[key] = message[begin:end].clone().view(dtype).view(shape)
                begin = end
    return states
