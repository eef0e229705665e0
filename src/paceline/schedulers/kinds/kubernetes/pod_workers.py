"""The workers of a pod: one process per device, and their log."""

import os
import signal
import subprocess
import sys
import threading
from typing import IO

from paceline.observe.killed_workers import shell_code
from paceline.schedulers.kinds.kubernetes.pod_task import (
    INDEX_VARIABLE,
    LOCAL_RANK_VARIABLE,
    PODS_VARIABLE,
    WORKERS_VARIABLE,
)
from paceline.specs import Run
from paceline.specs.owned_files import open_owned

_LONGEST_LINE_BYTES = 1 << 16


class PodWorkers:
    """The processes of a pod's workers in one start of the training.

    `joins`: they join a training that runs, in whatever generation it is by then.
    """

    def __init__(self, run: Run, generation: int, *, joins: bool = False) -> None:
        job = run.job
        self._goes_on = run.plan.faults.regroup and not job.probe
        module = "paceline.schedulers.task" if self._goes_on else "paceline.train"
        environment = os.environ | {
            "PACELINE_GENERATION": str(generation),
            PODS_VARIABLE: str(job.nodes + job.spares),
            WORKERS_VARIABLE: str(job.devices_per_node),
            **({"PACELINE_JOINS": "1"} if joins else {}),
        }
        self._log: IO[bytes] = open_owned(run.logs / f"{os.uname().nodename}.log", "ab")
        self._lock = threading.Lock()
        self._processes, self._readers = [], []
        for local_rank in range(job.devices_per_node):
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(run.path)],
                env=environment | {LOCAL_RANK_VARIABLE: str(local_rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            rank = int(os.environ[INDEX_VARIABLE]) * job.devices_per_node + local_rank
            reader = threading.Thread(target=self._copy, args=(process, rank), daemon=True)
            reader.start()
            self._processes.append(process)
            self._readers.append(reader)

    def exit_code(self) -> int | None:
        """Return the worst exit code when all have ended; None before.

        Without regrouping, one that fails ends the others.
        """
        codes = [process.poll() for process in self._processes]
        if not self._goes_on and any(codes):
            self.send(signal.SIGKILL)
        if any(code is None for code in codes):
            return None
        for reader in self._readers:
            reader.join()
        self._log.close()
        return max(shell_code(code) for code in codes if code is not None)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the workers that have not ended."""
        for process in self._processes:
            process.send_signal(number)

    def _copy(self, process: "subprocess.Popen[bytes]", rank: int) -> None:
        """Copy a worker's output to the run's log and to the pod's."""
        assert process.stdout is not None
        while line := process.stdout.readline(_LONGEST_LINE_BYTES):
            with self._lock:
                self._log.write(f"{rank}: ".encode() + line)
                self._log.flush()
                sys.stdout.buffer.write(f"{rank}: ".encode() + line)
                sys.stdout.buffer.flush()
