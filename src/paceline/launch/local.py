"""Workers on this machine: a small supervisor that starts them, keeps their output, ends them."""

import fcntl
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from paceline.observe.events import EventWriter
from paceline.specs import Ended, Failed, Job, PacelineError, Run

WORKERS_PER_CORE = 8
"""More workers than cores are for trying things out; beyond this they only thrash."""

_GRACE_SECONDS = 10.0
_SAVING_SECONDS = 300.0


def check_room(workers: int, accelerators: int) -> str | None:
    """Refuse more workers than this machine has devices; a warning where CPU cores are shared."""
    if accelerators:
        if workers > accelerators:
            raise PacelineError(
                f"{workers} workers were asked for, but this machine has {accelerators} devices",
                fix=f"use -n {accelerators}, or `paceline submit --nodes N` for more machines",
            )
        return None
    cores = len(os.sched_getaffinity(0))
    if workers > cores * WORKERS_PER_CORE:
        raise PacelineError(
            f"{workers} workers were asked for, but this machine has {cores} CPU cores and no"
            f" accelerator, which carries at most {cores * WORKERS_PER_CORE}",
            fix=f"use -n {cores}, or `paceline submit --nodes N` for more machines",
        )
    if workers > cores:
        return f"{workers} workers share {cores} CPU cores: good for trying out, not for speed"
    return None


class LocalLaunch:
    """The workers of one run on this machine."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._node = socket.gethostname()
        self._writer = EventWriter(run.events, self._node)
        self._log = (run.logs / f"{self._node}.log").open("a", buffering=1)
        self._log_lock = threading.Lock()
        self._term_sent: float | None = None
        self._failed_rank: int | None = None
        self._code: int | None = None
        minutes = run.job.limits.minutes
        self._deadline = time.monotonic() + 60 * minutes if minutes else None
        job = run.job
        self._generation = job.first_generation
        self._workers = [self._start(job, rank) for rank in range(job.workers)]
        self._pumps = [
            threading.Thread(target=self._pump, args=(rank, worker.stdout), daemon=True)
            for rank, worker in enumerate(self._workers)
        ]
        for pump in self._pumps:
            pump.start()

    def poll(self) -> int | None:
        """The exit code of the run when all workers are gone, None before.

        The first worker that fails takes the others with it: they could only wait for it.
        """
        if self._code is not None:
            return self._code
        codes = [worker.poll() for worker in self._workers]
        if self._failed_rank is None:
            self._failed_rank = next((rank for rank, code in enumerate(codes) if code), None)
            if self._failed_rank is not None and None in codes:
                self.stop()
        if None in codes:
            self._mind_the_time()
            return None
        for pump in self._pumps:
            pump.join()
        code = 0 if self._failed_rank is None else _shell_code(codes[self._failed_rank] or 0)
        self._close(code)
        self._code = code
        return code

    def _mind_the_time(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and now > self._deadline and not self._term_sent:
            self.stop()
        # Workers whose peer is gone can only wait for it; others are saving their state.
        grace = _GRACE_SECONDS if self._failed_rank is not None else _SAVING_SECONDS
        if self._term_sent and now - self._term_sent > grace:
            self.kill()

    def wait(self, seconds: float) -> None:
        """Wait for any worker to end, at most this long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if any(worker.poll() is not None for worker in self._workers):
                return
            time.sleep(0.01)

    def stop(self) -> None:
        """Ask the workers to stop at the edge of a step."""
        self._term_sent = self._term_sent or time.monotonic()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the workers at once."""
        self._signal(signal.SIGKILL)

    def _start(self, job: Job, rank: int) -> "subprocess.Popen[bytes]":
        environment = os.environ | {
            "PACELINE_RANK": str(rank),
            "PACELINE_WORKERS": str(job.workers),
            "PACELINE_LAUNCHER_PID": str(os.getpid()),
            "PYTHONUNBUFFERED": "1",
        }
        return subprocess.Popen(
            [str(job.python), "-m", "paceline.train", str(self._run.path)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Apart from our group, so that Ctrl-C reaches the workers through `stop` alone.
            process_group=0,
        )

    def _pump(self, rank: int, output: IO[bytes] | None) -> None:
        assert output is not None
        for line in output:
            with self._log_lock:
                self._log.write(f"{rank}: {line.decode(errors='replace').rstrip()}\n")
        output.close()

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(number)

    def _close(self, code: int) -> None:
        if self._failed_rank is not None:
            died = self._workers[self._failed_rank].returncode
            if died < 0:  # by a signal: it could not say so itself
                self._writer.write(
                    Failed(
                        time=time.time(),
                        node=self._node,
                        generation=self._generation,
                        rank=self._failed_rank,
                        message=f"killed by {signal.Signals(-died).name}",
                    )
                )
        self._writer.write(
            Ended(time=time.time(), node=self._node, generation=self._generation, exit_code=code)
        )
        self._log.close()


@contextmanager
def held(run: Run) -> Iterator[None]:
    """A block in which nobody else trains this run on this machine, whatever ends this process."""
    with run.lock_file.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PacelineError(
                f"{run.path} is being trained by another process",
                fix="wait for it or stop it (Ctrl-C); `paceline watch` shows how far it is",
            ) from None
        yield


def _shell_code(code: int) -> int:
    return 128 - code if code < 0 else code


def accelerators() -> int:
    """Accelerator devices of this machine, counted without loading torch."""
    nvidia = [path for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()]
    if nvidia:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return (
            len(nvidia) if visible is None else len([part for part in visible.split(",") if part])
        )
    # AMD and Intel devices are render nodes; a display adapter alone must not count as one.
    amd = list(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties"))
    return sum(1 for path in amd if "simd_count 0\n" not in path.read_text())
