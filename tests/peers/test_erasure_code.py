"""Parity: what is lost is computed from what is left, whatever the bytes and whoever is lost."""

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.peers import erasure_code
from paceline.peers.erasure_code import check_possible, parity_of, rebuilt
from paceline.peers.inventory import Row, rows_of_stripe
from paceline.peers.memory_client import ByteRange
from paceline.peers.memory_file import MemoryFile, Pool
from paceline.peers.parity import computed_row, rebuild
from paceline.specs import PacelineError


@given(st.data(), st.integers(1, 6), st.integers(1, 4), st.integers(1, 300))
def test_any_blocks_that_are_enough(
    data: st.DataObject, chunks: int, parity: int, length: int
) -> None:
    given = [data.draw(st.binary(min_size=length, max_size=length)) for _ in range(chunks)]
    blocks = [memoryview(block) for block in given]
    everything = dict(enumerate(blocks)) | {
        chunks + row: parity_of(blocks, parity, row) for row in range(parity)
    }
    lost = data.draw(st.permutations(sorted(everything)))[:parity]
    left = {number: block for number, block in everything.items() if number not in lost}
    begin = data.draw(st.integers(0, length - 1))
    byte_range = {number: block[begin:] for number, block in left.items()}
    for number in lost:
        if number < chunks:
            assert rebuilt(left, chunks, parity, number) == given[number]
            assert rebuilt(byte_range, chunks, parity, number) == given[number][begin:]


@given(st.data(), st.integers(2, 6), st.integers(1, 3))
def test_parts_of_any_sizes(data: st.DataObject, size: int, parity: int) -> None:
    if parity >= size:
        return
    group = tuple(range(size))
    parts = {rank: data.draw(st.binary(max_size=100)) for rank in group}
    sizes = {rank: len(part) for rank, part in parts.items()}
    stored: dict[int | Row, bytes] = {rank: part for rank, part in parts.items()}  # noqa: C416
    lost = set(data.draw(st.permutations(group))[:parity])

    def read(byte_ranges: Sequence[ByteRange]) -> list[bytearray]:
        found = [stored[each.of][each.begin : each.begin + each.bytes] for each in byte_ranges]
        assert [len(each) for each in found] == [each.bytes for each in byte_ranges]
        return [bytearray(each) for each in found]

    rows = [row for stripe in range(size) for row in rows_of_stripe(group, parity, stripe)]
    for row in rows:
        stored[row] = bytes(computed_row(row, sizes, read, Pool()).view)
    for rank in lost:
        del stored[rank]
    for row in rows:
        if row.keeper in lost:
            del stored[row]
    for rank in lost:
        if not parts[rank]:
            continue
        begin = data.draw(st.integers(0, sizes[rank] - 1))
        into = MemoryFile(sizes[rank] - begin)
        rebuild(
            rank,
            group,
            parity,
            sizes,
            at_hand=stored.__contains__,
            read=read,
            begin=begin,
            into=into,
        )
        assert bytes(into.view) == parts[rank][begin:]


def test_long_blocks_are_coded_piece_by_piece() -> None:
    length = 3 * erasure_code._AT_ONCE_BYTES + 5
    blocks = [memoryview(bytes([number]) * length) for number in (1, 2, 3)]
    rows = [parity_of(blocks, 2, row) for row in range(2)]
    assert rebuilt({1: blocks[1], 3: rows[0], 4: rows[1]}, 3, 2, 2) == blocks[2]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyeclib.ec_iface", None)
    erasure_code._driver.cache_clear()
    check_possible(1)
    with pytest.raises(PacelineError, match=r"faults\.parity is 2, which needs PyECLib") as caught:
        check_possible(2)
    assert "paceline[parity]" in str(caught.value.fix)
