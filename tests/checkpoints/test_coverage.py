"""Which pieces make a whole tensor."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.checkpoints.coverage import added_up, covers_once, held
from paceline.checkpoints.tensor_extent import Box


def counted(whole: tuple[int, ...], pieces: list[Box]) -> bool:
    """The same question, answered element by element."""
    held = np.zeros(whole, dtype=int)
    for piece in pieces:
        held[piece.slices] += 1
    return bool((held == 1).all())


def adds_up(whole: tuple[int, ...], pieces: list[Box]) -> bool:
    """The same question, answered by numbers that workers add up."""
    numbers = added_up(held(whole, piece) for piece in pieces)
    return numbers == held(whole, Box((0,) * len(whole), whole))


shapes = st.lists(st.integers(0, 6), max_size=4).map(tuple)


@st.composite
def boxes(draw: st.DrawFn, whole: tuple[int, ...]) -> Box:
    begins = tuple(draw(st.integers(0, length)) for length in whole)
    ends = (draw(st.integers(begin, end)) for begin, end in zip(begins, whole, strict=True))
    return Box(begins, tuple(end - begin for begin, end in zip(begins, ends, strict=True)))


@st.composite
def tilings(draw: st.DrawFn, whole: tuple[int, ...]) -> list[Box]:
    """Cut a tensor, and the pieces of it, along random dimensions at random places."""
    pieces = [Box((0,) * len(whole), whole)]
    for _ in range(draw(st.integers(0, 6)) if whole else 0):
        piece = pieces.pop(draw(st.integers(0, len(pieces) - 1)))
        at = draw(st.integers(0, len(whole) - 1))
        first = draw(st.integers(0, piece.shape[at]))
        offset, rest, shape = list(piece.offset), list(piece.shape), list(piece.shape)
        offset[at], rest[at], shape[at] = piece.offset[at] + first, piece.shape[at] - first, first
        pieces += [Box(piece.offset, tuple(shape)), Box(tuple(offset), tuple(rest))]
    return draw(st.permutations(pieces))


@given(data=st.data(), whole=shapes)
def test_any_pieces(data: st.DataObject, whole: tuple[int, ...]) -> None:
    pieces = data.draw(st.lists(boxes(whole), max_size=6))
    once = counted(whole, pieces)
    assert covers_once(whole, pieces) == once
    assert adds_up(whole, pieces) == once


@given(data=st.data(), whole=shapes)
def test_a_tiling(data: st.DataObject, whole: tuple[int, ...]) -> None:
    pieces = data.draw(tilings(whole))
    assert covers_once(whole, pieces)
    assert adds_up(whole, pieces)


@given(data=st.data(), whole=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple))
def test_a_tiling_with_a_piece_moved(data: st.DataObject, whole: tuple[int, ...]) -> None:
    """The volume stays: what one element lacks, another has twice."""
    pieces = data.draw(tilings(whole))
    number = data.draw(st.integers(0, len(pieces) - 1))
    piece = pieces[number]
    room = [length - own for length, own in zip(whole, piece.shape, strict=True)]
    moved = tuple(data.draw(st.integers(0, length)) for length in room)
    pieces[number] = piece._replace(offset=moved)
    once = counted(whole, pieces)
    assert covers_once(whole, pieces) == once
    assert adds_up(whole, pieces) == once


def test_a_pinwheel_has_no_cut_through_all() -> None:
    pinwheel = [
        Box((0, 0), (1, 2)), Box((0, 2), (2, 1)), Box((2, 1), (1, 2)), Box((1, 0), (2, 1)),
        Box((1, 1), (1, 1)),
    ]  # fmt: skip
    assert covers_once((3, 3), pinwheel)
    assert not covers_once((3, 3), pinwheel[:-1])
    assert not covers_once((3, 3), [*pinwheel[:-1], pinwheel[0]])


def test_a_piece_outside_its_tensor_does_not_count() -> None:
    assert not covers_once((4,), [Box((0,), (2,)), Box((3,), (2,))])
    assert not covers_once((4, 4), [Box((0, 1), (4, 4))])


@pytest.mark.alone
def test_thousands_of_pieces_take_little_time() -> None:
    """Shards along one dimension, tensor-parallel slices along another."""
    pieces = [Box((row, 64 * at), (1, 64)) for row, at in itertools.product(range(4096), range(8))]
    began = time.process_time()
    assert covers_once((4096, 512), pieces)
    pieces[17] = pieces[18]
    assert not covers_once((4096, 512), pieces)
    assert time.process_time() - began < 2  # 0.2 s alone


def test_corners_of_many_dimensions_are_not_counted() -> None:
    """Each dimension doubles the work; nobody divides a tensor along 40 of them."""
    halves = [Box((at,) * 40, (1,) * 40) for at in range(2)]
    assert not covers_once((2,) * 40, halves)
