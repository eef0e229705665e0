"""Which points a study has, and how its folder keeps them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cli.options.number_list import number_list
from paceline.specs import PacelineError, Point, Study, SyncSettings
from paceline.study.points import check_rate, key, points, varied
from paceline.study.study_folder import StudyFolder

KEYS = ("sync", "shards", "batch")


def test_all_combinations_are_measured_fewest_workers_first() -> None:
    found = points([1, 2, 4], [1, 2], "strong", {})
    assert [(each.nodes, each.devices_per_node) for each in found] == [
        *((1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2))
    ]
    assert {each.batch_times for each in found} == {1}


def test_the_batch_of_a_weak_study_grows_with_the_workers() -> None:
    found = points([1, 4], [2], "weak", {"batch": ["1", "3"]})
    assert [(each.family, each.workers, each.batch_times) for each in found] == [
        *(("batch=1", 2, 2), ("batch=1", 8, 8), ("batch=3", 2, 6), ("batch=3", 8, 24))
    ]


def test_quality_is_held_against_the_first_and_no_setting_is_there_twice() -> None:
    varying = {"sync": ["local:every=8", "allreduce"], "batch": ["1", "8"]}
    found = points([1, 4], [1], "quality", varying | {"lr": ["naive", "scaled"]})
    assert list(dict.fromkeys(each.family for each in found)) == [
        "sync=local:every=8",
        "sync=local:every=8 batch=8 lr=naive",
        "sync=local:every=8 batch=8 lr=scaled",
        "sync=allreduce",
        "sync=allreduce batch=8 lr=naive",
        "sync=allreduce batch=8 lr=scaled",
    ]
    assert [each.workers for each in found] == [1, 4] * 6
    assert [each.batch_times for each in found[::2]] == [1, 8, 8] * 2


def test_ways_to_agree_have_commas_of_their_own() -> None:
    words = ["sync=allreduce,local:every=8,compress=int8,diloco:every=4", "shards=1,2"]
    assert varied(words, KEYS) == {
        "sync": ["allreduce", "local:every=8,compress=int8", "diloco:every=4"],
        "shards": ["1", "2"],
    }


@pytest.mark.parametrize("words", ["colour=red", "sync", "sync="])
def test_what_cannot_vary(words: str) -> None:
    with pytest.raises(PacelineError, match=r"is not KEY=A,B.*\n.*keys: sync, shards, batch"):
        varied([words], KEYS)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "0", "-1", "1.5"])
def test_what_is_no_list_of_numbers(text: str) -> None:
    with pytest.raises(PacelineError, match="is not a list of numbers"):
        number_list("--nodes", text)


@given(
    st.lists(
        st.builds(
            Point,
            nodes=st.integers(1, 64),
            devices_per_node=st.integers(1, 8),
            varied=st.dictionaries(st.sampled_from(KEYS), st.text(max_size=60), max_size=2),
        )
    )
)
def test_points_that_differ_have_folders_that_do(found: list[Point]) -> None:
    by_key: dict[str, tuple[int, int, str]] = {}
    for each in found:
        same = (each.nodes, each.devices_per_node, each.family)
        assert by_key.setdefault(key(each), same) == same
        assert key(each).replace("-", "").isalnum()


def study(folder: Path, **changes: object) -> Study:
    settings = {
        "name": "gpt",
        "train": folder / "train.py",
        "points": points([1, 2, 4], [1], "strong", {}),
        "repeat": 2,
        "cluster": "here",
    }
    return Study.model_validate(settings | changes)


def test_repetitions_go_there_and_back(tmp_path: Path) -> None:
    folder = StudyFolder.begun(tmp_path / "study", study(tmp_path))
    names = [each.name for each in folder.repetitions()]
    assert names == ["1x1-r1", "2x1-r1", "4x1-r1", "4x1-r2", "2x1-r2", "1x1-r2"]


def test_a_study_may_get_more_points_but_no_other_steps(tmp_path: Path) -> None:
    path = tmp_path / "study"
    StudyFolder.begun(path, study(tmp_path))
    more = StudyFolder.begun(
        path, study(tmp_path, points=points([4, 8], [1], "strong", {}), repeat=1)
    ).study
    assert [each.nodes for each in more.points] == [1, 2, 4, 8]
    assert more.repeat == 2
    with pytest.raises(PacelineError, match=r"has a study with steps = 60.*steps = 99"):
        StudyFolder.begun(path, study(tmp_path, steps=99))


def test_rates_of_local_steps_are_not_scaled_by_the_global_batch() -> None:
    point = Point(nodes=2, varied={"batch": "8", "lr": "scaled"}, batch_times=8)
    check_rate(point, SyncSettings.parse("allreduce"))
    check_rate(point.model_copy(update={"nodes": 1}), SyncSettings.parse("local:every=4"))
    with pytest.raises(PacelineError, match="each replica updates with its own part"):
        check_rate(point, SyncSettings.parse("local:every=4"))
