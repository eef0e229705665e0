"""Dry runs of as many devices as one likes: every worker has its place, and little is read."""

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset

from command import EXAMPLES
from paceline.parallel.dry_run.dry_run import dry_run
from paceline.specs import Layout
from paceline.user.script import training_of
from parallel.dry_runs import LENGTH, tried

degrees = st.integers(1, 12)


@given(pipeline=degrees, replicas=degrees, shards=degrees, tensor=degrees, data=st.data())
def test_every_worker_has_a_position_of_its_own(
    pipeline: int, replicas: int, shards: int, tensor: int, data: st.DataObject
) -> None:
    layout = Layout(pipeline=pipeline, replicas=replicas, shards=shards, tensor=tensor)
    rank = data.draw(st.integers(0, layout.workers - 1))
    position = layout.position(rank)
    back = ((position.stage * replicas + position.replica) * shards + position.shard) * tensor
    assert back + position.slice == rank
    sizes = (pipeline, replicas, shards, tensor)
    assert all(0 <= number < size for number, size in zip(position, sizes, strict=True))
    if position.slice < tensor - 1:
        assert layout.position(rank + 1) == position._replace(slice=position.slice + 1)
    elif position.shard < shards - 1:
        assert layout.position(rank + 1) == position._replace(shard=position.shard + 1, slice=0)


def test_positions_of_a_hundred_thousand_workers() -> None:
    layout = Layout(pipeline=10, replicas=25, shards=50, tensor=8)
    assert layout.workers == 100_000
    assert len({layout.position(rank) for rank in range(layout.workers)}) == layout.workers
    parts = Counter(layout.data_rank(rank) for rank in range(layout.workers))
    assert set(parts.values()) == {layout.tensor * layout.pipeline}
    assert set(parts) == set(range(layout.data_workers))


class Many(Dataset[Any]):
    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(LENGTH, dtype=torch.long), torch.zeros(LENGTH, dtype=torch.long)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(replicas=100_000),
        Layout(shards=25_000, tensor=4),
        pytest.param(
            Layout(pipeline=4, replicas=50, shards=125, tensor=4), marks=pytest.mark.nightly
        ),
    ],
    ids=["replicas", "shards", "all"],
)
def test_a_hundred_thousand_devices(layout: Layout) -> None:
    found = tried(layout, data=Many(), batch=200_000)
    assert found.nodes == 12_500
    assert [each.stage for each in found.ranks] == list(range(layout.pipeline))
    assert found.seconds < 60


def test_the_dataset_is_hardly_read() -> None:
    read: list[int] = []

    class Noted(Many):
        def __getitem__(self, index: int) -> Any:
            read.append(index)
            assert float(torch.rand(1)) < 2  # with numbers, unlike the model
            return super().__getitem__(index)

    tried(Layout(replicas=2, micro_batch=4), data=Noted(), batch=1000)
    assert len(read) <= 3


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "layout",
    [
        Layout(replicas=2, shards=64, tensor=8, micro_batch=1, recompute="block"),
        Layout(pipeline=8, replicas=8, shards=16, micro_batch=1, recompute="selective"),
    ],
    ids=["tensor", "pipeline"],
)
def test_seven_billion_parameters_on_1024_devices(layout: Layout) -> None:
    training = training_of(EXAMPLES / "dry_run" / "train.py", "training")
    found = dry_run(training, layout, devices_per_node=8)
    assert found.parameters == 6_738_415_616
    assert found.nodes == 128
    assert found.seconds < 60
