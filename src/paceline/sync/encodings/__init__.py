"""Encodings: ways to say a tensor in few bytes, so that little has to travel.

The size of a message depends only on the number of elements, so workers can allocate buffers for
each other's messages without communication. A non-finite number stays visible: the decoded tensor
has one too, at least in the same block or chunk.
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
    """A compact encoding of a flat tensor as bytes; equal tensors give equal bytes."""

    def message_bytes(self, elements: int) -> int:
        """Return the message size for `elements` elements, at least one."""
        ...

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Encode a flat, contiguous fp32 tensor as a flat tensor of bytes."""
        ...

    def decode(self, message: torch.Tensor, elements: int) -> torch.Tensor:
        """Decode a message to a new flat fp32 tensor, close to the encoded one."""
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
    """Return the encoding of this name; `keep` is the fraction that `topk` and `topk2` send."""
    if compress in _OF_THE_LARGEST:
        return _OF_THE_LARGEST[compress](keep)
    return _OF_ALL[compress]()
