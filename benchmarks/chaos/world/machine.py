"""A run under way: started, followed, and started again where it ended before its time."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chaos.faults.schedule import Fault
from benchmarks.chaos.settings import ON_SIM, WORKERS, Setting
from benchmarks.chaos.world.history import History
from benchmarks.chaos.world.workers import Lines, Worker, children, named, usage

JOB = Path(__file__).parents[1] / "train.py"
ROOT = Path(__file__).parents[3]
PACE_SECONDS = 0.01
SAVE_EVERY = 40
NO_STEP = 1 << 60
"""A step that no training comes to."""
ABOUT = ("--plan", "plan.toml", "--runs", "runs", "--name", "chaos")
_TICK_SECONDS = 0.005
_LOOK_SECONDS = 0.05
_SAMPLE_SECONDS = 1.0
_END_SECONDS = 300.0


class GaveUp(Exception):
    """The run did not come back; what was waited for is the message."""


class World:
    """One run on this machine."""

    def __init__(
        self,
        folder: Path,
        setting: Setting,
        *,
        steps: int,
        pace_seconds: float = PACE_SECONDS,
        save_every: int = SAVE_EVERY,
        faults: int = 0,
        spares: int = 0,
    ) -> None:
        self.spares = spares
        self.folder, self.setting, self.steps = folder, setting, steps
        self.chaos, self.checkpoints = folder / "chaos", folder / "checkpoints"
        self.runs = folder / "runs"
        for each in (self.chaos / "fired", self.checkpoints, self.runs, folder / "tmp"):
            each.mkdir(parents=True, exist_ok=True)
        self.history = History(folder / "history.jsonl")
        job = {"steps": steps, "optimizer": setting.optimizer, "pace_seconds": pace_seconds}
        (self.chaos / "job.json").write_text(json.dumps(job))
        (folder / "plan.toml").write_text(setting.plan(str(self.checkpoints), save_every, faults))
        self._lines = Lines(self.chaos / "steps")
        self._events: Lines | None = None
        self.events: Counter[str] = Counter()
        """How many events of each kind there have been."""
        self.workers: dict[str, Worker] = {}
        """By name, since the beginning."""
        self.step, self.generation = 0, -1
        self.first_step = 0
        """The first that the present generation took."""
        self.mark = (-1, 0)
        """The generation and the step when the last fault came."""
        self.finished = False
        self._looked = self._sampled = 0.0
        self.starts = 0
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def supervisor(self) -> "subprocess.Popen[bytes]":
        """The process that watches over the workers."""
        assert self._supervisor is not None
        return self._supervisor

    @property
    def run(self) -> Path:
        """The run's folder."""
        return next(self.runs.glob("chaos-*"))

    def start(self) -> None:
        """Start the run, or go on with it."""
        words = self.words_to_resume() if self.starts else self.words_to_start()
        with (self.folder / "said.txt").open("ab") as said:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "paceline", *words, "--quiet"],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )
        self.starts += 1
        self.history.write("started", pid=self.supervisor.pid, words=words)

    def words_to_start(self) -> list[str]:
        """What begins the run."""
        return ["run", str(JOB), *ABOUT, "--spares", str(self.spares)]

    def words_to_resume(self) -> list[str]:
        """What goes on with it."""
        return ["resume", str(self.run), "-n", str(WORKERS)]

    def order(self, next_step: int, due: Fault | None = None, worker: str = "") -> None:
        """Tell the workers up to which step to be quick, and one of them which fault is due."""
        told = {"next_step": next_step, "due": vars(due) | {"worker": worker} if due else {}}
        unfinished = self.chaos / "orders.new"
        unfinished.write_text(json.dumps(told))
        unfinished.rename(self.chaos / "orders.json")

    def training(self) -> list[Worker]:
        """The living workers of the present generation, in the order of their ranks."""
        found = [
            each
            for each in self.workers.values()
            if each.generation == self.generation >= 0 and self.trains(each)
        ]
        return sorted(found, key=lambda each: each.part)

    def trains(self, worker: Worker) -> bool:
        """Whether a worker that took the last steps is still there."""
        return worker.alive

    def until(self, reached: Callable[[], bool], seconds: float, what: str) -> None:
        """Follow the run until something is so; raises GaveUp where it does not come to that."""
        deadline = time.monotonic() + seconds
        while True:
            self.follow()
            if reached():
                return
            if time.monotonic() > deadline:
                raise GaveUp(f"{what} within {seconds:g} s")
            time.sleep(_TICK_SECONDS)

    def follow(self) -> None:
        """Read what is new; start the run again if it ended before its time."""
        for name, line in self._lines.new():
            self._stepped(name, line)
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            self._look_after_processes()
        if now - self._sampled > _SAMPLE_SECONDS:
            self._sampled = now
            self._sample()

    def _stepped(self, name: str, line: dict[str, Any]) -> None:
        worker = self.workers.setdefault(name, named(name))
        worker.step, worker.generation = line["step"], line["generation"]
        worker.part, worker.at = line["part"], line["at"]
        worker.python_threads = line["python_threads"]
        if worker.generation > self.generation:
            self.generation, self.step = worker.generation, worker.step
            self.first_step = worker.step
            self.history.write(
                "generation", at=worker.at, generation=self.generation, step=self.step
            )
        elif worker.generation == self.generation:
            self.step = max(self.step, worker.step)

    def _look_after_processes(self) -> None:
        if self._events is None and list(self.runs.glob("chaos-*")):
            self._events = Lines(self.run / "events")
        if self._events is not None:
            self.events.update(line["kind"] for _, line in self._events.new())
        code = self.supervisor.poll()
        if code is None:
            for worker in children(self.supervisor.pid):
                if worker.name not in self.workers:
                    self.workers[worker.name] = worker
                    self.history.write("process", worker=worker.name)
        elif not self.finished:
            self.history.write("exit", pid=self.supervisor.pid, code=code, step=self.step)
            if code == 0:
                self.finished = True
            elif self.starts > 200:
                raise GaveUp("the run ended again and again")
            else:
                self.start()

    def _sample(self) -> None:
        for worker in self.training():
            if used := usage(worker.pid):
                if ON_SIM:  # it keeps a thread for each of up to 64 streams, as CUDA its streams
                    used["threads"] = worker.python_threads
                self.history.write(
                    "sample",
                    worker=worker.name,
                    generation=worker.generation,
                    step=worker.step,
                    **used,
                )

    def finish(self, seconds: float = _END_SECONDS) -> None:
        """Follow the run to its end."""
        self.until(lambda: self.finished, seconds, "the run did not end")

    def close(self) -> None:
        """End what is left of the run; the checker has looked by then."""
        self.history.close()
        self.supervisor.kill()
        self.supervisor.wait()
        for worker in self.workers.values():
            worker.signal(signal.SIGKILL)

    def environment(self) -> dict[str, str]:
        """Variables for the run's processes."""
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        return os.environ | {
            "PACELINE_CHAOS": str(self.chaos),
            "PACELINE_SIM_DEVICES": str(WORKERS + self.spares),
            "TMPDIR": str(self.folder / "tmp"),
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.chaos / "torch"),  # torch makes it, and keeps it
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
