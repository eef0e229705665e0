"""Descriptions of parts, packed: names and numbers of many pieces take a tenth of their size."""

import zlib
from typing import TypeVar

from paceline.specs.base import Spec

_Kind = TypeVar("_Kind", bound=Spec)


def packed(description: Spec) -> bytes:
    """Return a description as compressed JSON."""
    return zlib.compress(description.model_dump_json().encode(), 1)


def unpacked(kind: type[_Kind], contents: bytes, most_bytes: int) -> tuple[_Kind, int]:
    """Return a description and the size of its JSON; unpack no more than `most_bytes`.

    Raise ValueError if it is none.
    """
    try:
        text = zlib.decompressobj().decompress(contents, max(1, most_bytes))
    except zlib.error as error:
        raise ValueError(f"{error}") from None
    return kind.model_validate_json(text), len(text)
