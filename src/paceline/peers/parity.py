"""Compute a group's parity rows, and rebuild lost parts from them."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from paceline.peers.erasure_code import parity_of, rebuilt
from paceline.peers.inventory import Row, rows_of_stripe, stripe_of_chunk
from paceline.peers.memory_client import ByteRange
from paceline.peers.memory_file import MemoryFile, Pool

_BLOCK_BYTES = 1 << 20
"""Bytes to read from each member at a time."""

Read = Callable[[Sequence[ByteRange]], list[bytearray]]
"""A function that reads several byte ranges at once."""


def computed_row(row: Row, sizes: Mapping[int, int], read: Read, pool: Pool) -> MemoryFile:
    """Compute a parity row over the parts of its stripe's members; `sizes` are the parts' sizes."""
    length = max(_chunk_bytes(sizes[rank], row.chunks) for rank in row.data_ranks)
    file = MemoryFile(length, pool)
    for begin in range(0, length, _BLOCK_BYTES):
        count = min(_BLOCK_BYTES, length - begin)
        blocks = _data_blocks(row, range(row.chunks), sizes, read, begin, count)
        file.write(begin, parity_of(list(blocks.values()), row.parity, row.row))
    return file


def rebuild(
    rank: int,
    group: tuple[int, ...],
    parity: int,
    sizes: Mapping[int, int],
    *,
    at_hand: Callable[[int | Row], bool],
    read: Read,
    begin: int,
    into: MemoryFile,
) -> None:
    """Rebuild bytes of a lost part from the other parts and the parity rows that are `at_hand`."""
    chunks = len(group) - parity
    size = _chunk_bytes(sizes[rank], chunks)
    done = 0
    while done < into.size:
        chunk, offset = divmod(begin + done, size)
        rows = rows_of_stripe(group, parity, stripe_of_chunk(group, parity, rank, chunk))
        count = min(_BLOCK_BYTES, size - offset, into.size - done)
        data = [number for number, each in enumerate(rows[0].data_ranks) if at_hand(each)]
        blocks = _data_blocks(rows[0], data, sizes, read, offset, count)
        chosen = [row for row in rows if at_hand(row)][: chunks - len(data)]
        found = read([ByteRange(row, offset, count) for row in chosen])
        for row, block in zip(chosen, found, strict=True):
            blocks[chunks + row.row] = memoryview(block)
        into.write(done, rebuilt(blocks, chunks, parity, chunk))
        done += count


def _chunk_bytes(total_bytes: int, chunks: int) -> int:
    """Return the size of the chunks that a part is split into; the last chunk may be shorter."""
    return max(1, ceil(total_bytes / chunks))


def _data_blocks(
    row: Row,
    numbers: Sequence[int],
    sizes: Mapping[int, int],
    read: Read,
    begin: int,
    count: int,
) -> dict[int, memoryview]:
    """Read the same byte range of several members' chunks; pad short chunks with zeros."""
    blocks = {number: bytearray(count) for number in numbers}
    wanted: dict[int, ByteRange] = {}
    for number in numbers:
        rank = row.data_ranks[number]
        size = _chunk_bytes(sizes[rank], row.chunks)
        first = number * size + begin
        there = min(count, size - begin, sizes[rank] - first)
        if there > 0:
            wanted[number] = ByteRange(rank, first, there)
    for number, found in zip(wanted, read(list(wanted.values())), strict=True):
        blocks[number][: len(found)] = found
    return {number: memoryview(block) for number, block in blocks.items()}
