"""Specs survive being written and read, and say what is wrong in a file."""

import math
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.specs import (
    Job,
    Layout,
    Limits,
    PacelineError,
    Plan,
    Run,
    Steps,
    SyncChanged,
    Traced,
    event_adapter,
)
from paceline.specs.measurements.learning import Learning

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1)


@given(replicas=st.integers(1, 10**6))
def test_plan_round_trip(tmp_path_factory: pytest.TempPathFactory, replicas: int) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    plan = Plan(layout=Layout(replicas=replicas))
    plan.write(path)
    assert Plan.read(path) == plan


@given(name=names, minutes=st.none() | st.integers(1, 10**6), nodes=st.integers(1, 10**5))
def test_job_round_trip(
    tmp_path_factory: pytest.TempPathFactory, name: str, minutes: int | None, nodes: int
) -> None:
    path = tmp_path_factory.mktemp("job") / "job.toml"
    job = Job(
        name=name,
        train=Path("/a/train.py"),
        nodes=nodes,
        limits=Limits(minutes=minutes),
        folder=Path("/a"),
        python=Path("/bin/python"),
    )
    job.write(path)
    assert Job.read(path) == job


@given(losses=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1))
def test_events_keep_what_is_not_finite(losses: list[float]) -> None:
    event = Steps(time=0, node="n1", first=1, loss=losses, seconds=[0.1], samples=[1])
    back = event_adapter.validate_json(event.model_dump_json())
    assert isinstance(back, Steps)
    assert all(
        (math.isnan(a) and math.isnan(b)) or a == b for a, b in zip(losses, back.loss, strict=True)
    )


def test_events_of_version_0_1_are_read() -> None:
    changed = event_adapter.validate_json(
        '{"kind": "agreed", "time": 1, "node": "n1", "step": 8, "why": "",'
        ' "sync": {"mode": "local"}}'
    )
    assert isinstance(changed, SyncChanged)
    assert changed.sync.mode == "local"
    traced = event_adapter.validate_json(
        '{"kind": "traced", "time": 1, "node": "n1", "rank": 0, "first": 1, "steps": 2,'
        ' "step_seconds": 1, "communication_seconds": 0.5, "hidden_seconds": 0.4,'
        ' "clock_offset_seconds": 0, "clock_uncertainty_seconds": 0}'
    )
    assert isinstance(traced, Traced)
    assert traced.overlapped_seconds == 0.4
    assert event_adapter.validate_json(traced.model_dump_json()) == traced


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[layout]\nreplicas = 0", "layout.replicas: Input should be greater than or equal to 1"),
        ("[layout]\nreplica = 2", "layout.replica: Extra inputs are not permitted"),
        ("[layout", "is not valid TOML"),
    ],
)
def test_a_wrong_plan_is_said_by_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(PacelineError, match=said.replace(".", r"\.").replace("(", r"\(")):
        Plan.read(path)


def test_a_missing_plan(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="does not exist"):
        Plan.read(tmp_path / "plan.toml")


def test_a_run_is_a_folder_with_a_secret_of_its_own(tmp_path: Path) -> None:
    job = Job(name="a", train=tmp_path / "t.py", folder=tmp_path, python=Path("/bin/python"))
    one, two = (Run.create(tmp_path / "runs", job, Plan()) for _ in range(2))
    assert one.path != two.path
    assert one.path.parent == tmp_path / "runs"
    assert stat.S_IMODE(one.secret_file.stat().st_mode) == 0o600
    assert one.secret_file.read_text() != two.secret_file.read_text()
    assert Run.open(one.path).job == job


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"not a run's folder(.|\n)*runs/<name>-<time>"):
        Run.open(tmp_path)
    with pytest.raises(PacelineError, match=r"does not exist(.|\n)*runs/<name>-<time>"):
        Run.open(tmp_path / "mistyped")


def test_a_parent_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = Job(name="a", train=tmp_path / "t.py", folder=tmp_path, python=Path("/bin/python"))
    with pytest.raises(PacelineError, match="--runs"):
        Run.create(tmp_path / "file", job, Plan())


def test_a_critical_batch_has_its_ends_in_order(tmp_path: Path) -> None:
    path = tmp_path / "learning.toml"
    path.write_text(
        'training = "a.py:b"\nbatch = 64\nsteps = 9\nlow = 300\nhigh = 0\ngrowth = []\n'
    )
    with pytest.raises(PacelineError, match=r": file: high is 0, below low, 300\n"):
        Learning.read(path)
