"""`benchmarks/sync/time_to_loss`: its arithmetic, and a short measurement on a real testbed."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sync.time_to_loss.candidates import CANDIDATES, TRIALS, Trial
from benchmarks.sync.time_to_loss.results import Point, Result, Results, Setting, rows_of

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "benchmarks.sync.time_to_loss"]


def run(name: str, seed: int, *points: tuple[float, float, float], kind: str = "solo") -> Result:
    """Of points (seconds, bytes, loss), ten samples apart."""
    made = [
        Point(number, 10 * number, seconds, sent, loss)
        for number, (seconds, sent, loss) in enumerate(points)
    ]
    return Result(name, seed, Trial(kind), target=2.0, points=tuple(made))  # type: ignore[arg-type]


def test_every_candidate_has_as_many_trials_and_no_two_alike() -> None:
    for trials in CANDIDATES.values():
        assert len(set(trials)) == len(trials) == TRIALS


def test_time_and_bytes_are_read_where_the_loss_first_falls_to_the_target() -> None:
    result = run("solo", 1, (0, 0, 4.0), (10, 100, 3.0), (30, 300, 1.0), (40, 400, 2.5))
    assert result.seconds == pytest.approx(20)
    assert result.sent_bytes == pytest.approx(200)
    assert result.loss_at(15) == pytest.approx(2.0)
    never = run("solo", 1, (0, 0, 4.0), (10, 100, 3.0))
    assert math.isinf(never.seconds)
    assert math.isnan(never.loss_at(11))


def test_quotients_are_taken_seed_by_seed() -> None:
    runs = [run("solo", seed, (0, 0, 4.0), (10.0 * seed, 0, 2.0)) for seed in (1, 2, 3)]
    runs += [run("DDP", seed, (0, 0, 4.0), (5.0 * seed, 9, 2.0)) for seed in (3, 1, 2)]
    solo, ddp = rows_of(runs)
    assert ddp.against["solo"] == pytest.approx(0.5)
    assert solo.against["DDP"] == pytest.approx(2)
    assert (ddp.median_seconds, ddp.median_bytes) == (10, 9)


def test_results_of_several_files_are_read_together(tmp_path: Path) -> None:
    for ratio in (1.0, 4.0):
        setting = Setting("A", ratio, 2, "small", "a link", 0.01)
        result = run("solo", 1, (0, 0, 4.0), (10, 0, 2.0))
        Results([setting], [result]).write(tmp_path / f"{ratio}.json")
    found = Results.read(tmp_path.glob("*.json"))
    assert {each.ratio for each in found.settings} == {1.0, 4.0}
    assert found.results == [result, result]


@pytest.mark.slurm
@pytest.mark.nightly
@pytest.mark.parametrize("protocol", ["A", "B"])
def test_a_short_measurement(protocol: str, tmp_path: Path) -> None:
    file, picture = tmp_path / "results.json", tmp_path / "picture.svg"
    files = ["--json", str(file), "--svg", str(picture)]
    how = ["--quick", "--protocol", protocol, "--step-seconds", "0.1"]
    done = subprocess.run(
        [*COMMAND, *how, *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(file.read_text())
    solo, ours = Results.read([file]).results
    assert said["settings"][0]["ratio"] == 5
    assert solo.points[0] == ours.points[0], "both begin with the same weights"
    for result in (solo, ours):
        assert 0 < result.seconds < math.inf
        assert result.points[-1].loss < result.points[0].loss
    # Three exchanges of 137,000 numbers in 8 bits are the least that can be under way by then.
    assert ours.points[-1].sent_bytes > 100_000 > solo.points[-1].sent_bytes
    assert "solo" in picture.read_text()
