"""Two nodes of unequal speed under Slurm: work by speed against even work."""

import statistics
from pathlib import Path

import pytest

from command import EXAMPLES, paceline_json
from paceline.specs import Run, Steps, event_adapter

pytestmark = [pytest.mark.slurm, pytest.mark.alone]


def newest(runs: Path) -> Path:
    return max(runs.iterdir(), key=lambda run: run.stat().st_mtime)


def step_seconds(run: Path) -> float:
    lines = (Run(run).events / "n1.jsonl").read_text().splitlines()
    events = [event_adapter.validate_json(line) for line in lines]
    steps = [each for event in events if isinstance(event, Steps) for each in event.seconds]
    return statistics.median(steps)


@pytest.mark.nightly
def test_work_by_speed_is_as_much_faster_as_it_should_be(cluster: str, shared_folder: Path) -> None:
    """Speeds 1 : 2. Evenly the slower node has 30 samples of 60, by speed 20: 1.5 times faster."""
    example = EXAMPLES / "unequal"
    plans: dict[str, list[str | Path]] = {
        "even": [],
        "by speed": ["--plan", example / "plan.toml"],
    }
    seconds, losses = {}, {}
    for name, plan in plans.items():
        result = paceline_json(
            *("submit", example / "train.py", "--nodes", "2", "--testbed", cluster, "--wait"),
            *("--name", name.replace(" ", "-"), *plan),
            folder=shared_folder,
        )
        seconds[name], losses[name] = (
            step_seconds(newest(shared_folder / "runs")),
            result["final_loss"],
        )
    gain = seconds["even"] / seconds["by speed"]
    print(f"even {seconds['even']:.3f} s, by speed {seconds['by speed']:.3f} s: {gain:.2f} times")
    assert gain == pytest.approx(1.5, rel=0.1)
    assert losses["by speed"] == pytest.approx(losses["even"], rel=1e-4)
