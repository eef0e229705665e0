"""A layout's arithmetic, and the settings that do not go together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.specs import Layout, PacelineError

sizes = st.integers(1, 12)
layouts = st.builds(Layout, replicas=sizes, shards=sizes, tensor=sizes, pipeline=sizes)


@given(layouts, st.data())
def test_every_worker_has_a_position_of_its_own(layout: Layout, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, layout.workers - 1))
    stage, replica, shard, slice_number = layout.position(rank)
    assert stage < layout.pipeline
    again = ((stage * layout.replicas + replica) * layout.shards + shard) * layout.tensor
    assert again + slice_number == rank
    assert layout.data_rank(rank) == replica * layout.shards + shard < layout.data_workers


def test_what_exchanges_most_stays_together() -> None:
    layout = Layout(pipeline=2, replicas=2, shards=2, tensor=8)
    first_node = [layout.position(rank) for rank in range(8)]
    assert {position.slice for position in first_node} == set(range(8))
    assert {position[:3] for position in first_node} == {(0, 0, 0)}


def test_a_hundred_thousand_devices() -> None:
    layout = Layout(pipeline=16, replicas=25, shards=32, tensor=8)
    assert layout.workers == 102_400
    assert layout.position(102_399) == (15, 24, 31, 7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compile": True, "tensor": 2}, "compile=true was given together with tensor"),
        ({"compile": True, "pipeline": 2}, "compile=true was given together with pipeline"),
        (
            {"schedule": "zero-bubble", "pipeline": 2, "shards": 2},
            "schedule=zero-bubble was given together with shards",
        ),
        (
            {"schedule": "zero-bubble", "pipeline": 2, "recompute": "selective"},
            "schedule=zero-bubble was given together with recompute=selective",
        ),
        ({"sequence": True, "pipeline": 2, "tensor": 2}, "sequence=true was given together with"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PacelineError, match=message) as raised:
        Layout(**settings).check()
    assert "\n  -> " in str(raised.value)


def test_a_plan_of_version_0_1_is_read() -> None:
    assert Layout.model_validate({"batch_norm": "synchronised"}).batch_norm == "synchronized"
