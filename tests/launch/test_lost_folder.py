"""A run whose disk fills up and is freed again, and one whose folder is deleted."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from command import PACELINE, paceline_json, write_training
from paceline.report import RunReader
from paceline.report.live.view import line
from paceline.specs import FOLDER_GONE_EXIT_CODE, Run
from ranks import new_run

TRAINING = """
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
import paceline

class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(12, 20_000), nn.Tanh(), nn.Linear(20_000, 2))
        self.steps = 0

    def forward(self, rows):
        self.steps += 1
        Path("progress").write_text(str(self.steps))
        time.sleep(0.02)
        return self.inner(rows)

def training():
    rows = torch.randn(200, 12, generator=torch.Generator().manual_seed(7))
    return paceline.Training(
        model=Counted,
        loss=F.cross_entropy,
        data=TensorDataset(rows, (rows[:, 0] > 0).long()),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=32,
        steps=STEPS,
    )
"""
STEPS = 250
NAMESPACE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
ON_A_SMALL_DISK = """
mkdir runs
mount -t tmpfs -o size=8m tmpfs runs || exit 1
"$@"
code=$?
cp -r runs kept
exit $code
"""


@contextmanager
def training(folder: Path, *words: str, workers: int = 2) -> "Iterator[subprocess.Popen[str]]":
    """A real `paceline run`, seen from another process; it does not outlive the block."""
    write_training(folder, text=TRAINING.replace("STEPS", str(STEPS)))
    run = [*PACELINE, "run", "train.py", "-n", str(workers), "--save-every", "20", "--quiet"]
    process = subprocess.Popen(
        [*words, *run],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()


def until(found: Callable[[], object], process: "subprocess.Popen[str]", what: str) -> None:
    deadline = time.monotonic() + 60
    while not found():
        if process.poll() is not None:
            pytest.fail(f"the run ended: {process.communicate()}")
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def progress(folder: Path) -> int:
    try:
        return int((folder / "progress").read_text() or 0)
    except FileNotFoundError:
        return 0


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.slow
def test_a_run_survives_a_full_disk_and_tells(tmp_path: Path) -> None:
    with training(tmp_path, *NAMESPACE, "sh", "-c", ON_A_SMALL_DISK, "sh") as process:
        disk = Path(f"/proc/{process.pid}/root{tmp_path}/runs")
        until(lambda: list(disk.glob("*/checkpoints/step-*20")), process, "no checkpoint")
        fill(disk / "filler")
        (events,) = disk.glob("*/events/*.jsonl")
        watched = RunReader(Run.open_to_read(events.parent.parent))
        assert "disk full" in line(watched.refresh())
        waits = events.stat().st_size, progress(tmp_path)

        def nothing_is_written_for_long() -> bool:
            nonlocal waits
            now = events.stat().st_size, progress(tmp_path)
            if now[0] != waits[0]:
                waits = now
                fill(disk / "more")  # freed by a checkpoint that expired or failed
            return now[1] > waits[1] + 40

        until(nothing_is_written_for_long, process, "the disk does not fill up")
        for each in (disk / "filler", disk / "more"):
            each.unlink(missing_ok=True)
        output = process.communicate(timeout=60)
        assert process.returncode == 0, output
    assert "Traceback" not in output[1]
    (kept,) = (tmp_path / "kept").iterdir()
    state = RunReader(Run.open_to_read(kept)).refresh()
    assert state.unreadable_lines == 0
    assert state.status == "finished"
    assert state.step == list(range(1, STEPS + 1))
    assert state.off == []
    off = {each.began.protection for each in state.lapses}
    assert off == {"events", "checkpoints"}
    for lapse in state.lapses:
        assert lapse.ended is not None
        assert "No space left on device" in lapse.began.why
    assert state.checkpoints[-1].step == STEPS
    (checkpoint,) = [each for each in state.lapses if each.began.protection == "checkpoints"]
    shown = paceline_json("report", kept, folder=tmp_path)["protection"]
    assert checkpoint.began.step in [each["step"] for each in shown]
    assert "Traceback" not in (next((kept / "logs").glob("*.log"))).read_text()


SLOWLY_SECONDS = 0.2


@pytest.mark.parametrize("first", [None, "secret", "plan.toml", "events", "job.toml"])
def test_a_deleted_folder_ends_the_run_with_one_sentence(tmp_path: Path, first: str | None) -> None:
    with training(tmp_path) as process:
        # The first of these steps are the check's, so the workers still start.
        until(lambda: progress(tmp_path) > 5, process, "no step")
        (run,) = (tmp_path / "runs").iterdir()
        entries = sorted(run.iterdir(), key=lambda entry: entry.name != first) if first else []
        for entry in entries:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
            time.sleep(SLOWLY_SECONDS)
        while run.exists():
            shutil.rmtree(run, ignore_errors=True)
        _, said = process.communicate(timeout=30)
    assert process.returncode == FOLDER_GONE_EXIT_CODE, said
    assert "Traceback" not in said
    assert f"{run} is gone" in said


def test_no_run_is_made_on_a_full_disk(tmp_path: Path) -> None:
    write_training(tmp_path)
    script = "mkdir runs; mount -t tmpfs -o size=4k tmpfs runs; echo > runs/filler"
    done = subprocess.run(
        [
            *NAMESPACE,
            "sh",
            "-c",
            f'{script}; exec "$@"',
            "sh",
            *PACELINE,
            "run",
            "train.py",
            "-n",
            "1",
        ],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "no run folder can be made in" in done.stderr
    assert "No space left on device" in done.stderr


ON_A_FULL_DISK = """
mkdir disk
mount -t tmpfs -o size=1m tmpfs disk || exit 1
cp -r cut-off disk/run
head -c 2M /dev/zero > disk/fill
exec "$@"
"""


@pytest.mark.parametrize(
    "words",
    [
        ("resume", "disk/run"),
        ("study", "train.py", "--steps", "4", "--warm-up", "1", "--repeat", "1", "--out", "disk/s"),
    ],
    ids=["resume", "study"],
)
def test_a_command_says_that_the_disk_is_full(words: tuple[str, ...], tmp_path: Path) -> None:
    write_training(tmp_path)
    new_run(tmp_path, workers=1).path.rename(tmp_path / "cut-off")
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", ON_A_FULL_DISK, "sh", *PACELINE, *words],
        check=False,
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
