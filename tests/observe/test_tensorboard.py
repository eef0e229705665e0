"""TensorBoard's files, read back by TensorBoard."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from command import PACELINE, paceline, write_training
from paceline.observe.audience import Audience
from paceline.report import RunReader
from paceline.specs import Run
from report.folders import interrupted_run, realistic_run


def forward(run: Run, *to: str) -> None:
    audience = Audience(run, to, lambda text: None)
    RunReader(run, audience.forward).refresh()
    audience.close()
    assert not audience.failed


def read_back(folder: Path) -> EventAccumulator:
    keep_all = {"scalars": 0, "tensors": 0}
    found = EventAccumulator(str(folder), size_guidance=keep_all)
    found.Reload()
    return found


def notes_in(found: EventAccumulator) -> list[tuple[int, str]]:
    return [
        (each.step, each.tensor_proto.string_val[0].decode()) for each in found.Tensors("notes")
    ]


def test_steps_and_times_are_those_of_the_run(tmp_path: Path) -> None:
    run = realistic_run(tmp_path, count=40)
    state = RunReader(run).refresh()
    forward(run, "tensorboard")
    found = read_back(run.path / "tensorboard")
    for tag, column in (("loss", state.loss), ("step_seconds", state.seconds)):
        scalars = found.Scalars(tag)
        assert [each.step for each in scalars] == state.step
        assert [each.value for each in scalars] == pytest.approx(column)
        assert [each.wall_time for each in scalars] == pytest.approx(state.time)
    assert {each.value for each in found.Scalars("slowest/rank")} == {3}
    assert notes_in(found) == [(40, "finished")]


def test_steps_taken_again_are_there_once(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    state = RunReader(run).refresh()
    forward(run, "tensorboard")
    found = read_back(run.path / "tensorboard")
    losses = found.Scalars("loss")
    assert [each.step for each in losses] == list(range(1, 101))
    assert [each.wall_time for each in losses] == pytest.approx(state.time)
    notes = dict(notes_in(found))
    assert "worker 2 on n3 failed: killed by SIGKILL; failed; the run continued from" in notes[20]


def test_a_follower_that_begins_anew_repeats_nothing(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    place = f"tensorboard:{tmp_path / 'all'}"
    forward(run, place)
    before = read_back(tmp_path / "all" / run.name).Scalars("loss")
    forward(run, place)
    assert len(list((tmp_path / "all" / run.name).iterdir())) == 2
    after = read_back(tmp_path / "all" / run.name).Scalars("loss")
    assert after == before


SLOW = """
import dataclasses, time
quick, whole_loss = training, F.cross_entropy
def slow_loss(output, target):
    time.sleep(0.2)
    return whole_loss(output, target)
def training():
    return dataclasses.replace(quick(), loss=slow_loss, steps=40)
"""


@pytest.mark.nightly
def test_a_run_that_is_stopped_and_resumed(tmp_path: Path) -> None:
    write_training(tmp_path, SLOW)
    words = [*PACELINE, "run", "train.py", "-n", "1", "--to", "tensorboard", "--quiet"]
    process = subprocess.Popen(words, cwd=tmp_path)
    try:
        while not any(b'"steps"' in file.read_bytes() for file in tmp_path.glob("runs/*/events/*")):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 3
    finally:
        process.kill()
        process.wait()
    (run,) = (tmp_path / "runs").iterdir()
    before = [each.step for each in read_back(run / "tensorboard").Scalars("loss")]
    assert before == list(range(1, len(before) + 1))
    assert len(before) < 40
    paceline("resume", run, "--quiet", folder=tmp_path)
    found = read_back(run / "tensorboard")
    assert [each.step for each in found.Scalars("loss")] == list(range(1, 41))
    assert (len(before), f"the run continued from step {len(before)}") in notes_in(found)
