"""What workers hold and write makes up the whole tensor, whatever the layout."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.checkpoints import tensor_extent
from paceline.checkpoints.tensor_extent import Box, Extent


@st.composite
def cuts(draw: st.DrawFn) -> tuple[tuple[int, ...], int, tuple[int, ...], int, int, int]:
    """A shape, the dimension and parts that slices cut, and how many slices, shards, replicas."""
    ways = draw(st.integers(1, 3))
    parts = tuple(ways * draw(st.integers(1, 4)) for _ in range(draw(st.integers(1, 3))))
    dimension = draw(st.integers(0, 1))
    other = draw(st.integers(1, 9))
    shape = (sum(parts), other) if dimension == 0 else (other, sum(parts))
    return shape, dimension, parts, ways, draw(st.integers(1, 4)), draw(st.integers(1, 3))


def _held(
    whole: torch.Tensor, dimension: int, parts: tuple[int, ...], ways: int, number: int
) -> tuple[torch.Tensor, Extent]:
    """A slice of a tensor whose parts are each cut into as many, as a worker holds it."""
    starts = [sum(parts[:index]) for index in range(len(parts))]
    ranges = [
        range(start + number * part // ways, start + (number + 1) * part // ways)
        for start, part in zip(starts, parts, strict=True)
    ]
    index = torch.tensor([position for each in ranges for position in each])
    local = whole.index_select(dimension, index)
    return local, Extent.slice(tuple(local.shape), dimension, ranges, whole.shape[dimension])


@pytest.mark.parametrize("smallest_part_bytes", [8, 1 << 20])
@given(cuts())
def test_everything_is_held_in_its_place_and_written_once(
    smallest_part_bytes: int,
    cut: tuple[tuple[int, ...], int, tuple[int, ...], int, int, int],
) -> None:
    shape, dimension, parts, ways, shards, replicas = cut
    whole = torch.arange(shape[0] * shape[1]).reshape(shape)
    written = torch.zeros(shape, dtype=torch.int64)
    before = tensor_extent._SMALLEST_PART_BYTES
    tensor_extent._SMALLEST_PART_BYTES = smallest_part_bytes
    try:
        for number in range(ways):
            local, extent = _held(whole, dimension, parts, ways, number)
            each = -(-local.shape[0] // shards)
            for shard in range(shards):
                begin = min(shard * each, local.shape[0])
                rows = local[begin : begin + each]
                own = extent.rows(begin, len(rows))
                for piece in own.pieces("weight", rows):
                    assert torch.equal(piece.tensor, whole[piece.box.slices])
                for replica in range(replicas):
                    for piece in own.among(replicas, replica).written("weight", rows):
                        assert torch.equal(piece.tensor, whole[piece.box.slices])
                        written[piece.box.slices] += 1
    finally:
        tensor_extent._SMALLEST_PART_BYTES = before
    assert (written == 1).all()


def test_a_number_is_written_by_one_worker() -> None:
    extent = Extent.everything(())
    writers = [list(extent.among(3, copy).written("scale", torch.tensor(2.0))) for copy in range(3)]
    assert sum(map(len, writers)) == 1


boxes = st.tuples(
    st.tuples(st.integers(0, 5), st.integers(0, 5)), st.tuples(st.integers(1, 5), st.integers(1, 5))
).map(lambda both: Box(*both))


@given(boxes, boxes)
def test_overlap(one: Box, other: Box) -> None:
    grid = torch.zeros(10, 10, dtype=torch.int64)
    grid[one.slices] += 1
    grid[other.slices] += 1
    shared = one.overlap(other)
    assert int((grid == 2).sum()) == (shared.shape[0] * shared.shape[1] if shared else 0)
    if shared:
        assert (grid[shared.slices] == 2).all()
