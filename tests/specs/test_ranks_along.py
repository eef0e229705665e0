"""The ranks of a worker's process groups, from its layout."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.specs import Layout

DIMENSIONS = {"pipeline": "stage", "replicas": "replica", "shards": "shard", "tensor": "slice"}
sizes = st.integers(1, 4)


@given(
    replicas=sizes,
    shards=sizes,
    tensor=sizes,
    pipeline=sizes,
    rank=st.integers(0, 255),
    along=st.sets(st.sampled_from(sorted(DIMENSIONS))),
)
def test_ranks_along_dimensions_are_those_of_equal_positions_elsewhere(
    replicas: int, shards: int, tensor: int, pipeline: int, rank: int, along: set[str]
) -> None:
    layout = Layout(replicas=replicas, shards=shards, tensor=tensor, pipeline=pipeline)
    rank %= layout.workers

    def fixed(each: int) -> list[int]:
        position = layout.position(each)
        return [getattr(position, DIMENSIONS[name]) for name in DIMENSIONS if name not in along]

    expected = [each for each in range(layout.workers) if fixed(each) == fixed(rank)]
    assert layout.ranks_along(rank, *along) == expected
