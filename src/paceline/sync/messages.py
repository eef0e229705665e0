"""What workers and the servers of weights send each other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.comm.errors import PeerLost

PUSH, ANSWER = 1, 2
"""Tags: a server's answers and a worker's gradients pass between the same two workers."""

GOODBYE = 0
"""In the place of a step: the worker has no more gradients."""

_ALL_ARE_THERE, _ONE_IS_LOST = 0.0, 1.0


@dataclass(frozen=True)
class Push:
    """A worker's gradient of a part, with the numbers that its optimizer has at this step."""

    step: int
    settings: Sequence[float]
    gradient: torch.Tensor
    """As one row."""

    def packed(self) -> torch.Tensor:
        """As bytes to send; of the same length in every step."""
        numbers = torch.tensor([self.step, *self.settings], dtype=torch.float64)
        return torch.cat([numbers.view(torch.uint8), self.gradient.cpu().view(torch.uint8)])

    @classmethod
    def unpacked(cls, message: torch.Tensor, like: torch.Tensor) -> "Push":
        """What was sent, on the memory of the message; `like`: a row of the same form."""
        begin = len(message) - like.nbytes
        step, *settings = message[:begin].view(torch.float64).tolist()
        return cls(int(step), settings, message[begin:].view(like.dtype))


def answer(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Weights as one row, and behind them that all workers are there."""
    there = weights[0].new_tensor(_ALL_ARE_THERE).reshape(1)
    return torch.cat([*(each.detach().flatten() for each in weights), there])


def room_for_answer(row: torch.Tensor) -> torch.Tensor:
    """For a row of weights, and the number behind it; until it is written, that one is lost."""
    return row.new_full((len(row) + 1,), _ONE_IS_LOST)


def weights_in(answered: torch.Tensor) -> torch.Tensor:
    """The weights that a server answered with."""
    if answered[-1] == _ONE_IS_LOST:
        raise PeerLost("the weight server lost a worker")
    return answered[:-1]


def packed_states(states: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    """What a checkpoint keeps of an optimizer's state, as bytes: what there is, then tensors."""
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
    """What was packed."""
    begin = 8 + int(message[:8].view(torch.int64))
    states: list[dict[str, Any]] = json.loads(bytes(message[8:begin].tolist()))
    for state in states:
        for key, value in state.items():
            if isinstance(value, dict):
                dtype, shape = getattr(torch, value["dtype"]), value["shape"]
                end = begin + torch.Size(shape).numel() * dtype.itemsize
                # A copy, since numbers of several bytes may lie anywhere in the message.
                state[key] = message[begin:end].clone().view(dtype).view(shape)
                begin = end
    return states
