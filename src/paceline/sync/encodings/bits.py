"""Pack numbers of 1 and of 12 bits into bytes, and read bytes as other types."""

from functools import lru_cache

import torch


def bit_bytes(bits: int) -> int:
    """Return the number of bytes that hold this many bits."""
    return -(-bits // 8)


def pack_bits(bits: torch.Tensor) -> torch.Tensor:
    """Pack a flat fp32 tensor of zeros and ones, eight to a byte."""
    short = -len(bits) % 8
    if short:
        bits = torch.nn.functional.pad(bits, (0, short))
    # A product with powers of two is torch's fastest way to do this, and it is exact. The last
    # power is negative because floats convert fastest to signed bytes.
    return torch.mv(bits.view(-1, 8), _powers(bits.device)).to(torch.int8).view(torch.uint8)


def unpack_bits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first `count` bits as zeros and ones in fp32."""
    return _eight_bits(packed.device).index_select(0, packed.int()).view(-1)[:count]


def unpack_signs(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first `count` bits in fp32: -1 for each zero and +1 for each one."""
    return _eight_signs(packed.device).index_select(0, packed.int()).view(-1)[:count]


@lru_cache
def _powers(device: torch.device) -> torch.Tensor:
    return torch.tensor([1.0, 2, 4, 8, 16, 32, 64, -128], device=device)


@lru_cache
def _eight_bits(device: torch.device) -> torch.Tensor:
    """Return the bits of each byte, lowest first: a lookup is faster than shifting."""
    byte, place = torch.arange(256, device=device), torch.arange(8, device=device)
    return (byte[:, None] >> place & 1).float()


@lru_cache
def _eight_signs(device: torch.device) -> torch.Tensor:
    return 2 * _eight_bits(device) - 1


def index_bytes(count: int) -> int:
    """Return the number of bytes that hold this many 12-bit indices."""
    return count + -(-count // 2)


def pack_indices(indices: torch.Tensor) -> torch.Tensor:
    """Pack numbers below 4096: their lower 8 bits, then the upper 4 bits, two to a byte."""
    upper = indices >> 8
    half = -(-len(upper) // 2)
    pairs = upper[:half].clone()
    pairs[: len(upper) - half] |= upper[half:] << 4
    return torch.cat([indices & 255, pairs]).to(torch.uint8)


def unpack_indices(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first `count` numbers below 4096."""
    pairs = packed[count:].long()
    upper = torch.cat([pairs & 15, pairs >> 4])[:count]
    return packed[:count].long() | upper << 8


def read_as(part: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """View bytes of a message as numbers; copy them if they are not aligned."""
    if part.storage_offset() % dtype.itemsize:
        part = part.clone()
    return part.view(dtype)
