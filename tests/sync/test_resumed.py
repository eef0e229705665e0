"""Local steps that go on from a checkpoint, on as many workers and on others."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from paceline.checkpoints.folder import Folder
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Layout, Plan, Run, Saving, SyncSettings
from ranks import run_ranks
from sync.simulated import planned
from sync.stepwise import SAVE_EVERY, whole_and_resumed
from train.trainings import classification, fit_and_read

pytestmark = pytest.mark.slow

STEPS = 18


@pytest.mark.parametrize(
    "words",
    [
        "diloco:every=4,fragments=3,overlap=2,compress=int8",
        pytest.param("sparseloco:every=3", marks=pytest.mark.nightly),
        pytest.param("local:every=7", marks=pytest.mark.nightly),
    ],
)
def test_local_steps_go_on_as_they_would_have(tmp_path: Path, words: str) -> None:
    """The checkpoint is taken between two exchanges, with one of them under way."""
    whole, resumed = whole_and_resumed(tmp_path, 2, SyncSettings.parse(words), steps=STEPS)
    torch.testing.assert_close(resumed, whole, atol=0, rtol=0)


def begun(changes: dict[str, Any]) -> list[float]:
    """What a rank has when it goes on from a checkpoint, before its first step."""
    with paceline.start(classification(**changes)) as trainer:
        row = torch.cat([each.detach().flatten() for each in trainer.model.parameters()])
    return row.tolist()


@pytest.mark.parametrize(
    "words", ["allreduce", pytest.param("diloco:every=4,overlap=1", marks=pytest.mark.nightly)]
)
def test_other_replicas_begin_with_the_mean_of_those_before(tmp_path: Path, words: str) -> None:
    """Also where they agree in another way from now on."""
    changes = {"steps": STEPS}
    sync = SyncSettings.parse("local:every=100")
    run = planned(tmp_path, 2, sync, saving=Saving(every_steps=SAVE_EVERY, keep_last=9))
    run_ranks(fit_and_read, 2, tmp_path, changes, run=run)
    checkpoints = Folder(run.checkpoints)
    for step in checkpoints.steps():
        if step > SAVE_EVERY:
            checkpoints.remove(step)
    run.job.model_copy(update={"first_generation": 1}).write(run.job_file)
    before = run_ranks(begun, 2, tmp_path, {"steps": SAVE_EVERY + 1}, run=run)
    assert before[0] != before[1]

    Plan(
        layout=Layout(replicas=3), saving=Saving(every_steps=0), sync=SyncSettings.parse(words)
    ).write(run.plan_file)
    job = run.job.model_copy(update={"first_generation": 2, "devices_per_node": 3})
    job.write(run.job_file)
    after = run_ranks(begun, 3, tmp_path, changes, run=run)
    mean = torch.tensor(before).mean(0)
    for row in after:
        torch.testing.assert_close(torch.tensor(row), mean)
    job.model_copy(update={"first_generation": 3}).write(run.job_file)
    finished = run_ranks(fit_and_read, 3, tmp_path, changes, run=run)
    assert finished[0][1] == finished[1][1] == finished[2][1]
    assert finished[0][0][-1] < finished[0][0][0]


def slowly(changes: dict[str, Any]) -> list[int]:
    """Train with steps of about 20 ms; the steps of which there are checkpoints in the end."""
    with paceline.start(classification(**changes)) as trainer:
        for batch in trainer:
            time.sleep(0.02)
            trainer.step(batch)
    folder = run_folder()
    assert folder is not None
    return Folder(Run(folder).checkpoints).steps()


@pytest.mark.nightly
def test_what_is_saved_by_the_clock_is_saved_once(tmp_path: Path) -> None:
    """Also where the workers hear a window late that it is time to."""
    saving = Saving(every_minutes=0.6 / 60, keep_last=99)
    run = planned(tmp_path, 2, SyncSettings.parse("local:every=10"), saving=saving)
    steps = run_ranks(slowly, 2, tmp_path, {"steps": 400}, run=run)[0][:-1]
    assert len(steps) > 1
    assert all(later - earlier > 5 for earlier, later in pairwise(steps))
