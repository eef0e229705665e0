"""The scale rig in small: real light workers, members in event loops, and the simulation agree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common.processes import ROOT, environment
from benchmarks.control_plane.simulated import Costs, simulate

MOST_MESSAGES_PER_MEMBER = 14
"""Of a regroup after a loss, with notices to possible leaders: 13.7 with 24 processes."""
AGREE = 0.5, 2.0


def run(folder: Path, *options: str) -> list[dict[str, float | str | None]]:
    figures = folder / "figures.json"
    command = [sys.executable, "-m", "benchmarks.control_plane", "--json", str(figures), *options]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, float | str | None]] = json.loads(figures.read_text())["measured"]
    return found


def check(found: list[dict[str, float | str | None]]) -> None:
    assert [one for one in found if one["left_out"]] == []
    messages = {
        (one["members"], one["how"]): float(one["messages"] or 0)
        for one in found
        if one["event"] == "worker killed" and one["how"] != "simulated, a core each"
    }
    for (members, _), count in messages.items():
        assert count <= MOST_MESSAGES_PER_MEMBER * float(members or 0)
    for members in {members for members, _ in messages}:
        counts = [count for (each, _), count in messages.items() if each == members]
        assert AGREE[0] <= min(counts) / max(counts) <= AGREE[1]


def test_two_simulated_cores_need_half_the_time_of_one() -> None:
    costs = Costs(per_message=0.0, per_byte=0.0, per_member=0.006, per_member_squared=0.0)
    one, two = (simulate(64, costs, cores=cores).seconds for cores in (1, 2))
    assert two == pytest.approx(one / 2, rel=0.1)


@pytest.mark.nightly
def test_processes_event_loops_and_simulation_agree(tmp_path: Path) -> None:
    found = run(tmp_path, "--members", "24", "--loops", "24", "--simulated", "24", "--kills", "1")
    assert {one["how"] for one in found} == {
        "processes",
        "event loops",
        "simulated",
        "simulated, a core each",
    }
    check(found)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_they_agree_in_larger_crews(tmp_path: Path) -> None:
    sizes = ("--members", "64,256", "--loops", "64,256,1000", "--simulated", "64,256,1000")
    check(run(tmp_path, *sizes, "--kills", "5"))
