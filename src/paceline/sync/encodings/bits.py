"""Packing numbers of 1 and of 12 bits into bytes, and reading bytes as other types."""

from functools import lru_cache

import torch


def bit_bytes(bits: int) -> int:
    """Bytes that so many bits take."""
    return -(-bits // 8)


def pack_bits(bits: torch.Tensor) -> torch.Tensor:
    """Eight at a time into a byte, of a flat fp32 tensor of zeros and ones."""
    short = -len(bits) % 8
    if short:
        bits = torch.nn.functional.pad(bits, (0, short))
    # A product with powers of two is the fastest way that torch has to do this, and it is exact.
    # The last is negative because a byte with a sign is what a float is converted to fastest.
    return torch.mv(bits.view(-1, 8), _powers(bits.device)).to(torch.int8).view(torch.uint8)


def unpack_bits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """The first `count` bits, as zeros and ones in fp32."""
    return _eight_bits(packed.device).index_select(0, packed.int()).view(-1)[:count]


def unpack_signs(packed: torch.Tensor, count: int) -> torch.Tensor:
    """The first `count` bits, as -1 for each zero and +1 for each one, in fp32."""
    return _eight_signs(packed.device).index_select(0, packed.int()).view(-1)[:count]


@lru_cache
def _powers(device: torch.device) -> torch.Tensor:
    return torch.tensor([1.0, 2, 4, 8, 16, 32, 64, -128], device=device)


@lru_cache
def _eight_bits(device: torch.device) -> torch.Tensor:
    """For each byte its bits, lowest first: looking them up is faster than shifting."""
    byte, place = torch.arange(256, device=device), torch.arange(8, device=device)
    return (byte[:, None] >> place & 1).float()


@lru_cache
def _eight_signs(device: torch.device) -> torch.Tensor:
    return 2 * _eight_bits(device) - 1


def index_bytes(count: int) -> int:
    """Bytes that so many indices of 12 bits take."""
    return count + -(-count // 2)


def pack_indices(indices: torch.Tensor) -> torch.Tensor:
    """Numbers below 4096: their lower 8 bits, then the upper 4 bits, two at a time into a byte."""
    upper = indices >> 8
    half = -(-len(upper) // 2)
    pairs = upper[:half].clone()
    pairs[: len(upper) - half] |= upper[half:] << 4
    return torch.cat([indices & 255, pairs]).to(torch.uint8)


def unpack_indices(packed: torch.Tensor, count: int) -> torch.Tensor:
    """So many numbers below 4096."""
    pairs = packed[count:].long()
    upper = torch.cat([pairs & 15, pairs >> 4])[:count]
    return packed[:count].long() | upper << 8


def read_as(part: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes of a message as numbers; copied if they begin where such a number cannot."""
    if part.storage_offset() % dtype.itemsize:
        part = part.clone()
    return part.view(dtype)
