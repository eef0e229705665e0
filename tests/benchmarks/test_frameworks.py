"""`benchmarks/frameworks`: its arithmetic, and that DDP and Paceline train its job alike."""

import math
import sys
from pathlib import Path

import pytest

from benchmarks.common.code_lines import lines_of
from benchmarks.common.processes import Failed
from benchmarks.frameworks.__main__ import PAGE, in_turns
from benchmarks.frameworks.results import APART, METER, TOLERANCE, Results, Run
from benchmarks.frameworks.ways import WAYS, Measured, Way, run_once

PYTHON = Path(sys.executable)
FIGURES = Path(__file__).parents[2] / "benchmarks" / "frameworks" / "figures.json"


def results(*runs: tuple[int, str, float, float]) -> Results:
    """Of runs (round, way, steps per second, final loss)."""
    made = [
        Run(number, way, Measured(1.0, speed, loss, 10**8)) for number, way, speed, loss in runs
    ]
    return Results("a machine", 20, 0.0, {run.way: "1" for run in made}, {}, made)


@pytest.mark.nightly
def test_ddp_and_paceline_train_alike() -> None:
    ddp, ours = (run_once(WAYS[name], PYTHON, steps=14) for name in ("DDP", "Paceline"))
    assert abs(ours.final_loss - ddp.final_loss) < TOLERANCE
    assert ddp.final_loss < math.log(256), "it learns, so that another training ends elsewhere"
    for each in (ddp, ours):
        assert each.steps_per_second > 0
        assert each.startup_seconds > 0
        assert 10**8 < each.peak_bytes < 10**10


@pytest.mark.nightly
def test_accelerate_trains_alike() -> None:
    pytest.importorskip("accelerate")
    ddp, theirs = (run_once(WAYS[name], PYTHON, steps=14) for name in ("DDP", "Accelerate"))
    assert abs(theirs.final_loss - ddp.final_loss) < TOLERANCE


def test_a_way_that_fails_says_why() -> None:
    with pytest.raises(Failed, match=r"missing\.py"):
        run_once(Way("Nobody", "missing.py", "python"), PYTHON, steps=12)


@pytest.mark.parametrize("loss", [2.002, 1.998, math.nan])
def test_another_loss_is_found(loss: float) -> None:
    alike = ((0, "DDP", 10.0, 2.0), (0, "Paceline", 10.0, 2.0005), (0, "DDP", 10.0, 2.0))
    assert not results(*alike).disagreeing()
    found = results(*alike, (1, "Fabric", 10.0, loss))
    assert found.disagreeing() == ["Fabric"]
    assert "DIFFERS" in found.markdown()


def test_speeds_are_compared_with_the_runs_of_ddp_around_them() -> None:
    found = results(
        (0, "DDP", 10.0, 2.0),
        (0, "Paceline", 12.0, 2.0),
        (0, "DDP", 14.0, 2.0),
        (0, "Fabric", 9.0, 2.0),
        (0, "DDP", 4.0, 2.0),
        (1, "DDP", 1.0, 2.0),
        (1, "Paceline", 2.0, 2.0),
    )
    assert found.ratios("Paceline") == pytest.approx([1.0, 2.0])
    assert found.ratios("Fabric") == pytest.approx([1.0])
    assert found.ratios("DDP") == pytest.approx([1.4, 4 / 14]), "not by a run of another round"


def test_ddp_runs_between_any_two_others() -> None:
    ways = [WAYS[name] for name in ("DDP", "Paceline", "Fabric")]
    names = [way.name for way in in_turns(ways, backwards=True)]
    assert names == ["DDP", "Fabric", "DDP", "Paceline", "DDP"]


def test_lines_that_a_user_writes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        '"""A docstring\n\nof three lines."""\n\nfrom typing import Any\nimport torch  # 1\n'
        "# a comment\nfrom meter import Meter\n\n\ndef network():\n    return torch.nn.ReLU()\n"
        "\n\nclass Metered:\n    seen = 0\n\n\ndef main():  # 2\n"
        "    model = dict(  # 3\n        parameters=2,  # 4\n    )  # 5\n    meter = Meter()\n"
        '    text = """two  # 6\nlines"""  # 7\n'
    )
    assert lines_of(script, APART, METER) == 7


def test_what_was_measured_can_be_read_again(tmp_path: Path) -> None:
    found = results((0, "DDP", 10.0, 2.0), (0, "Paceline", 12.0, 2.0))
    found.skipped["Horovod (patched)"] = "no compiler"
    found.write(tmp_path / "found.json")
    again = Results.read(tmp_path / "found.json")
    assert again == found
    assert "Horovod (patched) was skipped: no compiler" in again.markdown()


def test_the_page_has_the_figures_of_the_file() -> None:
    fresh = Results.read(FIGURES).markdown()
    assert fresh in PAGE.read_text(), (
        f"`python -m benchmarks.frameworks --show {FIGURES} --write` puts them there"
    )
