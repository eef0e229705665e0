"""Erasure code over byte blocks of equal length: XOR for one lost block, else Reed-Solomon.

Both codes compute each parity byte only from the bytes at the same offset in the blocks, so any
byte range of a block can be rebuilt from the same range of the others.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from paceline.specs import PacelineError

_AT_ONCE_BYTES = 64 << 10
"""Bytes of each block per call. The library holds the GIL during a call, and training may wait."""


def check_possible(parity: int) -> None:
    """Raise an error if the library for this much parity is missing, before any copy begins."""
    if parity > 1:
        _driver(1, parity)


def parity_of(blocks: Sequence[memoryview], parity: int, row: int) -> memoryview:
    """Return one parity row over these blocks."""
    if parity == 1:
        return _xor(blocks)
    driver = _driver(len(blocks), parity)
    found = bytearray()
    for byte_range in _stretches(len(blocks[0])):
        together = b"".join(block[byte_range] for block in blocks)
        found += driver.encode(together)[len(blocks) + row][-len(together) // len(blocks) :]
    return memoryview(found)


def rebuilt(blocks: Mapping[int, memoryview], data: int, parity: int, wanted: int) -> memoryview:
    """Rebuild a data block from any `data` other blocks. Parity blocks are numbered last."""
    if parity == 1:
        return _xor(list(blocks.values()))
    driver = _driver(data, parity)
    found = bytearray()
    for byte_range in _stretches(len(next(iter(blocks.values())))):
        size = byte_range.stop - byte_range.start
        headers = _headers(data, parity, size)
        decoded = driver.decode(
            [headers[number] + bytes(block[byte_range]) for number, block in blocks.items()]
        )
        found += decoded[wanted * size : (wanted + 1) * size]
    return memoryview(found)


def _stretches(length: int) -> list[slice]:
    return [
        slice(begin, min(length, begin + _AT_ONCE_BYTES))
        for begin in range(0, length, _AT_ONCE_BYTES)
    ]


def _xor(blocks: Sequence[memoryview]) -> memoryview:
    found = np.frombuffer(blocks[0], np.uint8).copy()
    for block in blocks[1:]:
        np.bitwise_xor(found, np.frombuffer(block, np.uint8), out=found)
    return found.data


@cache
def _driver(data: int, parity: int) -> Any:
    try:
        from pyeclib.ec_iface import ECDriver  # noqa: PLC0415 - only where the plan asks for it
    except ImportError:
        raise PacelineError(
            f"faults.parity is {parity}, which needs PyECLib",
            fix='pip install "paceline[parity]"; or set faults.parity = 1, which needs nothing',
        ) from None
    return ECDriver(k=data, m=parity, ec_type="isa_l_rs_cauchy")


@lru_cache(maxsize=32)
def _headers(data: int, parity: int, size: int) -> list[bytes]:
    """Return the headers of blocks of this size, which the library expects when it decodes."""
    fragments = _driver(data, parity).encode(bytes(data * size))
    return [fragment[: len(fragment) - size] for fragment in fragments]
