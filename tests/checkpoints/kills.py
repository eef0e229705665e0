"""A run that is struck again and again, by a seeded schedule, and resumed on other workers."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from paceline.checkpoints.ledger import EpochRecord, read_ledger
from paceline.report import RunReader
from paceline.specs import Damaged, Run

STEPS, SAVE_EVERY = 300, 10
KINDS = ("rank", "all", "term", "full", "saving")
"""kill -9 of one worker; of all; SIGTERM; a full disk and then kill -9; kill -9 inside saving."""

TRAIN = f"""
import time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
import paceline

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh())
        self.head = nn.Linear(512, 4)

    def forward(self, x):
        time.sleep(0.002)
        return self.head(self.layers(x))

def training():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(240, 16, generator=generator)
    return paceline.Training(
        model=Net,
        loss=F.cross_entropy,
        data=TensorDataset(x, x[:, :4].argmax(1)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, {STEPS}),
        batch=24,
        steps={STEPS},
    )
"""


@dataclass
class Struck:
    """What became of a run that was struck."""

    summary: dict[str, Any]
    ledger: list[EpochRecord]
    strikes: list[str] = field(default_factory=list)
    """What was done to it, to be read when something is wrong."""
    damaged: list[str] = field(default_factory=list)
    """Checkpoints that a start found damaged: there must be none."""


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own that can be filled up; needs root."""
    folder.mkdir()
    size = f"size={megabytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


class Striker:
    """Starts a run, strikes it, resumes it, until it has been struck often enough; then lets it
    finish."""

    def __init__(self, folder: Path, disk: Path, seed: int) -> None:
        self._folder, self._disk = folder, disk
        self._random = random.Random(seed)
        self._run: Run | None = None
        self.strikes: list[str] = []
        (folder / "train.py").write_text(TRAIN)

    def strike(self, kinds: list[str]) -> Struck:
        for kind in kinds:
            with self._started() as process:
                self._await_progress(process)
                self._act(kind, process)
            self._free_disk()
        with self._started() as process:
            code = process.wait(timeout=200)
            assert code == 0, (code, self._last_words())
        assert self._run is not None
        state = RunReader(self._run).refresh()
        summary = _paceline("watch", self._run.path, "--json", folder=self._folder)
        return Struck(
            json.loads(summary.stdout),
            read_ledger(self._run.ledger),
            self.strikes,
            [each.message for each in state.trouble if isinstance(each, Damaged)],
        )

    @contextmanager
    def _started(self) -> "Iterator[subprocess.Popen[str]]":
        workers = self._random.randint(1, 4)
        words: list[str | Path]
        if self._run is None:
            words = ["run", "train.py", "-n", str(workers), "--ledger", "--micro-batch", "6"]
            words += ["--faults", "regroup=false"]
            words += ["--save-every", str(SAVE_EVERY), "--checkpoints", self._disk]
        else:
            words = ["resume", self._run.path, "-n", str(workers)]
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *map(str, words), "--quiet"],
            cwd=self._folder,
            stderr=(self._folder / "stderr.txt").open("w"),
            text=True,
        )
        self.strikes.append(f"start on {workers}")
        try:
            yield process
        finally:
            family = _family(process)
            process.kill()
            process.wait()
            _, alive = psutil.wait_procs(family, timeout=10)
            assert not alive, f"left behind: {alive}"

    def _await_progress(self, process: "subprocess.Popen[str]") -> None:
        """Until this start has taken a few steps, so that every start gets further."""
        deadline = time.monotonic() + 100
        wanted = self._random.randint(1, 2 * SAVE_EVERY)
        first = None
        while time.monotonic() < deadline:
            assert process.poll() is None, self._last_words()
            if self._run is None:
                with suppress(ValueError, OSError):
                    (path,) = (self._folder / "runs").iterdir()
                    self._run = Run.open(path) if (path / "job.toml").exists() else None
            if self._run is not None and (step := self._newest_step()) is not None:
                first = step if first is None else first
                if step >= min(first + wanted, STEPS - 20):
                    return
            time.sleep(0.002)
        raise AssertionError(f"no progress: {self._last_words()}")

    def _newest_step(self) -> int | None:
        """The last step that the ledger of the newest start has, of its first part."""
        assert self._run is not None
        starts = [item for item in self.strikes if item.startswith("start")]
        path = self._run.ledger / f"start-{len(starts) - 1:05d}-part-00000.jsonl"
        with suppress(OSError, ValueError, KeyError, IndexError):
            return int(json.loads(path.read_text().splitlines()[-1])["step"])
        return None

    def _act(self, kind: str, process: "subprocess.Popen[str]") -> None:
        workers = [each for each in _family(process) if each.pid != process.pid]
        self.strikes.append(f"{kind} after step {self._newest_step()}")
        if kind == "rank":
            _kill(self._random.choice(workers))
            assert process.wait(timeout=60) == 1, self._last_words()
        elif kind == "all":
            _kill(psutil.Process(process.pid), *workers)
        elif kind == "term":
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 3, self._last_words()
        elif kind == "full":
            self._fill_disk()
            time.sleep(self._random.uniform(0, 0.5))
            _kill(*workers)
        elif kind == "saving":
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and not list(self._disk.glob("*/.draft-*")):
                time.sleep(0.0002)
            time.sleep(self._random.uniform(0, 0.02))
            _kill(*workers)

    def _fill_disk(self) -> None:
        with suppress(OSError), (self._disk / "ballast").open("wb") as file:
            while True:
                file.write(b"\0" * 65536)
                file.flush()

    def _free_disk(self) -> None:
        (self._disk / "ballast").unlink(missing_ok=True)

    def _last_words(self) -> str:
        logs = list(self._run.logs.glob("*.log")) if self._run else []
        log = "".join(path.read_text()[-2000:] for path in logs)
        return f"{self.strikes}\n{(self._folder / 'stderr.txt').read_text()}\n{log}"


def uninterrupted(folder: Path) -> dict[str, Any]:
    """The same run, left alone, on one worker."""
    (folder / "train.py").write_text(TRAIN)
    done = _paceline(*("run", "train.py", "-n", "1", "--micro-batch", "6", "--json"), folder=folder)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _paceline(*words: str | Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "paceline", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )


def _family(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    return []


def _kill(*processes: psutil.Process) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
