"""Under a real Slurm: training goes on without a lost node, also without the batch script's."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from command import paceline, paceline_json, write_training
from paceline import testbed
from paceline.checkpoints.ledger import read_ledger
from paceline.report import RunReader
from paceline.report.reading.run_state import RunState
from paceline.specs import Run

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

BOX = "lost-box"
# Four nodes share the cores of one machine: a node that only waits for a core is not lost.
PATIENT = ("--faults", "lease_seconds=5")
PACED = """
import os, pathlib, signal, time, dataclasses
quick = training

def loop():
    with paceline.start(dataclasses.replace(quick(), steps=STEPS)) as trainer:
        for batch in trainer:
            step, task = trainer.step(batch).step, os.environ["SLURM_PROCID"]
            before = pathlib.Path(f"killed-{task}")
            if step == 5 and int(task) in KILLED and not before.exists():
                before.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.1)
"""


@pytest.fixture
def box() -> Iterator[str]:
    """A testbed of four nodes, of which some are about to be lost."""
    if BOX in testbed.running():
        testbed.down(BOX)  # from a session that was killed
    testbed.up(testbed.TestbedSpec(name=BOX, nodes=4))
    try:
        yield BOX
    finally:
        testbed.down(BOX)


def _submitted(
    folder: Path, *words: str, steps: int, killed: Sequence[int] = ()
) -> tuple[Run, str]:
    write_training(folder, PACED.replace("STEPS", str(steps)).replace("KILLED", repr(list(killed))))
    said = paceline_json(
        *("submit", "train.py:loop", "--testbed", BOX, "--ledger", *words), folder=folder
    )
    return Run.open(Path(said["run"])), said["job"]


def _until(run: Run, regroups: int, step: int, *, status: str = "running") -> RunState:
    """The state of a run that has regrouped so often and come so far."""
    reader, deadline = RunReader(run), time.monotonic() + 120
    while time.monotonic() < deadline:
        state = reader.refresh()
        far = len(state.regroups) >= regroups and state.step and state.step[-1] >= step
        if far and state.status in (status, "finished"):
            return state
        time.sleep(0.1)
    state = reader.refresh()
    logs = "".join(f"\n== {log.name}\n{log.read_text()[-1000:]}" for log in run.logs.glob("*"))
    raise AssertionError(
        f"it is {state.status} at step {state.step[-1:]} after {state.regroups}{logs}"
    )


def test_a_worker_and_then_the_first_node_are_lost(box: str, shared_folder: Path) -> None:
    run, job = _submitted(
        shared_folder, "--nodes", "3", "--spares", "1", *PATIENT, steps=150, killed=[1]
    )
    (first,) = _until(run, 1, 10).regroups
    assert (first.workers, first.lost, first.joined) == (3, [1], [2])  # the spare is there at once
    testbed.link(box, "n1", down=True)  # a node without power says nothing any more
    testbed.stop(box, "n1")
    state = _until(run, 2, 150, status="finished")
    second = state.regroups[1]
    assert (second.workers, second.lost, second.steps_again) == (
        2,
        [0],
        0,
    )  # who was killed is back
    assert all(epoch.exact for epoch in read_ledger(run.ledger)[:-1])
    while not testbed.scheduler(box).state(job).is_over:
        time.sleep(0.2)  # its batch script is gone: a worker has ended it
    assert run.outcome_file.read_text().strip() == "0"


@pytest.mark.nightly
def test_too_few_are_left_and_the_job_is_queued_again(box: str, shared_folder: Path) -> None:
    run, _ = _submitted(
        shared_folder,
        *("--nodes", "3", "--save-every", "5", "--faults", "fewest_workers=3,lease_seconds=5"),
        steps=60,
    )
    _until(run, 0, 12)
    testbed.stop(box, "n2")
    testbed.start(box, "n2")
    state = _until(run, 0, 60, status="finished")
    assert state.status == "finished"
    assert len(state.interruptions) == 1
    assert all(epoch.exact for epoch in read_ledger(run.ledger)[:-1])


@pytest.mark.nightly
def test_all_workers_are_killed_and_the_job_is_queued_again(box: str, shared_folder: Path) -> None:
    run, _ = _submitted(
        *(shared_folder, "--nodes", "3", "--save-every", "2", *PATIENT),
        steps=60,
        killed=[0, 1, 2],
    )
    state = _until(run, 0, 60, status="finished")
    assert state.status == "finished"
    assert len(state.interruptions) == 1
    assert all(epoch.exact for epoch in read_ledger(run.ledger)[:-1])


def test_more_spares_than_nodes(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder)
    said = paceline(
        *("submit", "train.py", "--nodes", "3", "--spares", "2", "--testbed", cluster),
        folder=shared_folder,
        expect=2,
    ).stderr
    assert "--nodes 3 and --spares 2 together ask for more than the 4 nodes" in said
    assert "use --spares 1 at most" in said
