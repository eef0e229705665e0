"""The example of a run that is killed and resumed, and what the report makes of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command import EXAMPLES
from paceline.report import RunReader, render, summary
from paceline.report.run.interruption_figures import (
    checkpoint_figures,
    interruption_figures,
    trouble_figures,
)
from paceline.specs import Run


@pytest.mark.nightly
def test_the_example_is_killed_and_resumed(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "resume", tmp_path / "resume")
    done = subprocess.run(
        ["bash", "resume/stop_and_resume.sh"],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Finished after 1 interruption" in (tmp_path / "resume.html").read_text()
    (folder,) = (tmp_path / "runs").iterdir()
    run = Run.open(folder)
    state = RunReader(run).refresh()
    found = summary(state)
    assert (found.status, found.steps, found.samples) == ("finished", 232, 8 * 1797)
    assert state.step == list(range(1, 233))
    # The columns and the workers' own last word agree on what each step took.
    assert abs(sum(state.seconds) - found.seconds) < 1e-6
    (only,) = interruption_figures(state)
    assert (only.cause, only.workers_before, only.workers_after) == ("cut off", 2, 3)
    assert only.resumed_step is not None
    assert 100 <= only.resumed_step < 232
    assert (checkpoint_figures(state).last_step, trouble_figures(state)) == (232, [])
    assert "Interruptions" in render(run)
