"""`paceline study` as a user runs it, here and on a testbed."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from command import CLUSTER, EXAMPLES, PACELINE, paceline, paceline_json, write_training

pytestmark = pytest.mark.slow

DIGITS = str(EXAMPLES / "digits" / "train.py")


@pytest.mark.nightly
def test_one_and_two_workers_here(tmp_path: Path) -> None:
    words = ["study", DIGITS, "--workers", "1,2", "--steps", "12", "--warm-up", "4"]
    found = paceline_json(*words, "--repeat", "2", "--out", "s", folder=tmp_path)
    one, two = found["points"]
    assert [len(each["runs"]) for each in (one, two)] == [2, 2]
    assert one["speedup"] == {"value": 1.0, "low": None, "high": None}
    rates = [each["samples_per_second"]["value"] for each in (one, two)]
    assert two["speedup"]["value"] == pytest.approx(rates[1] / rates[0])
    assert two["efficiency"]["value"] == pytest.approx(rates[1] / rates[0] / 2)
    assert two["speedup"]["low"] <= two["speedup"]["value"] <= two["speedup"]["high"]
    assert {run["batch"] for each in (one, two) for run in each["runs"]} == {128}
    assert (
        two["runs"][0]["seconds"]["communication"]
        > 0
        == one["runs"][0]["seconds"].get("communication", 0)
    )
    assert found["findings"]
    assert "Speed-up" in (tmp_path / "s" / "report.html").read_text()
    # Nothing is measured twice, and more can be asked for.
    runs = sorted(path.name for path in (tmp_path / "s" / "runs").iterdir())
    again = paceline_json(*words, "--repeat", "2", "--out", "s", folder=tmp_path)
    assert again == found
    assert sorted(path.name for path in (tmp_path / "s" / "runs").iterdir()) == runs
    paceline("report", "s", "--format", "csv", folder=tmp_path)
    assert len((tmp_path / "report.csv").read_text().splitlines()) == 3


@pytest.mark.nightly
def test_a_weak_study_of_ways_to_agree(tmp_path: Path) -> None:
    words = ["--kind", "weak", "--vary", "sync=allreduce,local:every=4", "--repeat", "1"]
    found = paceline_json(
        *("study", DIGITS, "--workers", "2", "--steps", "8", "--warm-up", "2", *words),
        folder=tmp_path,
    )
    families = [each["point"]["varied"] for each in found["points"]]
    assert families == [{"sync": "allreduce"}, {"sync": "local:every=4"}]
    assert {each["runs"][0]["batch"] for each in found["points"]} == {256}
    assert (tmp_path / "studies" / "digits-weak" / "study.toml").exists()


@pytest.mark.nightly
def test_what_the_planner_says_stands_beside(tmp_path: Path) -> None:
    write_training(tmp_path)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    found = paceline_json(
        *("study", "train.py", "--workers", "2", "--steps", "6", "--warm-up", "2"),
        *("--repeat", "1", "--cluster", "cluster.toml", "--out", "s"),
        folder=tmp_path,
    )
    (point,) = found["points"]
    assert point["predicted_samples_per_second"] > 0
    (run,) = (tmp_path / "s" / "runs").iterdir()
    prediction = paceline_json("report", run, folder=tmp_path)["prediction"]
    # The batch of 32 takes a step.
    rate = 32 / prediction["predicted_seconds"]
    assert point["predicted_samples_per_second"] == pytest.approx(rate)


BREAKS_ON_TWO = """
import os

def breaks_on_two():
    if os.environ["PACELINE_WORKERS"] == "2":
        raise RuntimeError("two are too many")
    return training()
"""


@pytest.mark.nightly
def test_a_point_that_fails_is_named_and_not_tried_again(tmp_path: Path) -> None:
    write_training(tmp_path, BREAKS_ON_TWO)
    words = (
        "study",
        "train.py:breaks_on_two",
        "--workers",
        "1,2",
        "--steps",
        "6",
        "--warm-up",
        "2",
    )
    done = paceline(*words, "--repeat", "2", "--out", "s", "--json", folder=tmp_path, expect=1)
    one, two = json.loads(done.stdout)["points"]
    assert (len(one["runs"]), len(two["runs"])) == (2, 0)
    assert len(two["failures"]) == 1
    assert "two are too many" in two["failures"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "neither was given"),
        (["--workers", "1", "--nodes", "1"], "both were given"),
        (["--workers", "1,x"], "is not a list of numbers"),
        (["--workers", "1", "--devices", "2"], "--devices and --testbed need --nodes"),
        (["--workers", "1", "--steps", "5"], "leaves nothing to measure after --warm-up 10"),
        (["--workers", "1", "--vary", "link=1gbit"], "is not KEY=A,B"),
        (["--workers", "1", "--vary", "shards=x"], "--vary shards=x"),
        (["--workers", "1", "--vary", "batch=half"], "not a multiple of the training's batch"),
        (["--workers", "1,3", "--shards", "2"], "cannot be divided into copies of 2"),
    ],
)
def test_mistakes(tmp_path: Path, words: list[str], said: str) -> None:
    done = paceline("study", DIGITS, *words, folder=tmp_path, expect=2)
    assert said in done.stderr
    assert "\n  -> " in done.stderr


@pytest.mark.slurm
@pytest.mark.nightly
def test_a_study_that_is_killed_goes_on_where_it_stopped(cluster: str, shared_folder: Path) -> None:
    words = [
        *("study", DIGITS, "--nodes", "1,2", "--steps", "16", "--repeat", "1"),
        *("--testbed", cluster, "--out", "s", "--vary", "link=1gbit,100mbit", "--json"),
    ]
    first = subprocess.Popen([*PACELINE, *words], cwd=shared_folder, stdout=subprocess.PIPE)
    runs = shared_folder / "s" / "runs"
    deadline = time.monotonic() + 60
    while not (runs.is_dir() and len(list(runs.glob("*/job-id"))) >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    found = paceline_json(*words[:-1], folder=shared_folder)
    assert [len(each["runs"]) for each in found["points"]] == [1] * 4
    # The job that was going on was taken up, not submitted again.
    assert len(list(runs.iterdir())) == 4
    slow = {
        each["point"]["varied"]["link"]: each
        for each in found["points"]
        if each["point"]["nodes"] == 2
    }
    waited = {link: each["runs"][0]["network_seconds"] for link, each in slow.items()}
    assert waited["100mbit"] > 2 * waited["1gbit"]
