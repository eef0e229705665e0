"""Encodings: ways to say a tensor in few bytes, so that little has to travel.

A message's size follows from the number of elements alone, so that all workers can make room for
the messages of others without asking. A number that is not finite stays visible: what is decoded
has one too, in the same block or chunk at least.
"""

from typing import Protocol

import torch

from paceline.sync.encodings.bf16 import Bf16
from paceline.sync.encodings.integers import Int4, Int8
from paceline.sync.encodings.levels import Int2
from paceline.sync.encodings.sign import Sign
from paceline.sync.encodings.topk import TopK, TopK2

__all__ = ["Encoding", "encoding"]


class Encoding(Protocol):
    """A way to say a flat tensor in bytes; the same tensor gives the same bytes."""

    def message_bytes(self, elements: int) -> int:
        """Size of the message for so many elements, at least one."""
        ...

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """The message, flat and of bytes, for a flat and contiguous fp32 tensor."""
        ...

    def decode(self, message: torch.Tensor, elements: int) -> torch.Tensor:
        """A new flat fp32 tensor, close to the one that was encoded."""
        ...


_OF_ALL: dict[str, type[Encoding]] = {
    "bf16": Bf16,
    "int8": Int8,
    "int4": Int4,
    "int2": Int2,
    "sign": Sign,
}
_OF_THE_LARGEST: dict[str, type[TopK] | type[TopK2]] = {"topk": TopK, "topk2": TopK2}


def encoding(compress: str, *, keep: float) -> Encoding:
    """The encoding of that name; `keep` is the part of all elements that `topk` and `topk2` say."""
    if compress in _OF_THE_LARGEST:
        return _OF_THE_LARGEST[compress](keep)
    return _OF_ALL[compress]()
