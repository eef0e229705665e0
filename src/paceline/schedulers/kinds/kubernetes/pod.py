"""A pod of a run's job: `python -m paceline.schedulers.kinds.kubernetes.pod RUN`.

It does for its own workers what a batch script does for all; the run is a URL or a folder. Pods
have no access to the cluster's API: they know of each other by the run's files, and by the names
that the Job's Service gives them.
When one pod has to end, its workers leave and the others regroup; when all have to, the workers
save first. The exit code tells Kubernetes whether another pod should take this one's place.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from paceline.lease.lease import TERM_VARIABLE
from paceline.lease.object_lease import lease_store_of
from paceline.observe.event_writer import EventWriter
from paceline.remote.mirror import mirrored
from paceline.remote.node import prepare
from paceline.remote.object_store import is_url
from paceline.remote.places import copy_of, scratch_folder
from paceline.schedulers.job_lease import lease_term
from paceline.schedulers.kinds.kubernetes.manifest import RETRY_EXIT_CODE
from paceline.schedulers.kinds.kubernetes.pod_task import INDEX_VARIABLE, JOB_VARIABLE
from paceline.schedulers.kinds.kubernetes.pod_workers import PodWorkers
from paceline.specs import (
    BATCH_ALIVE_SECONDS,
    STOPPED_EXIT_CODE,
    TOO_FEW_EXIT_CODE,
    Ended,
    PacelineError,
    Run,
)
from paceline.specs.owned_files import private_umask, read_bounded, write_owned

_POLL_SECONDS = 0.2
_LEAVE_SECONDS = 8.0
"""How long a pod that has to end waits to hear whether all have to: files take 4 seconds."""
_RECORD_SECONDS = 20.0
"""How long a pod waits at the run's end for the others, of which some may have no node."""
_LEAVING, _RECORDED = "leaving", "recorded"
_KILLED_EXIT_CODE = 143
_MOST_BYTES = 1024


def main() -> int:
    """Train in this pod; return its exit code."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: told.set())
    try:
        run = _own_copy(sys.argv[1]) if is_url(sys.argv[1]) else Run.open(Path(sys.argv[1]))
        with mirrored(run):
            return Pod(run, told).train()
    except (PacelineError, OSError) as error:  # such as a bucket that does not answer
        print(error, file=sys.stderr)
        return RETRY_EXIT_CODE


def _own_copy(url: str) -> Run:
    folder = scratch_folder() / "pod" / "copy" / url.rstrip("/").rpartition("/")[2]
    prepare(url, folder)
    return Run.open(folder)


class Pod:
    """This pod, and how its run ends."""

    def __init__(self, run: Run, told: threading.Event) -> None:
        self._run, self._job, self._told = run, run.job, told
        self._index, self._name = int(os.environ[INDEX_VARIABLE]), os.environ[JOB_VARIABLE]
        self._pods = self._job.nodes + self._job.spares
        self._generation = self._job.first_generation

    def train(self) -> int:
        """Run this pod's workers to the end of the run, or of the pod; return the exit code."""
        run, job = self._run, self._job
        if self._is_over():
            return self._outcome() or 0
        for mark in (_LEAVING, _RECORDED):  # of the pod that this one replaces
            self._mark(mark, self._index).unlink(missing_ok=True)
        term = lease_term(run)
        os.environ["PACELINE_UMASK"] = f"{os.umask(private_umask(share=job.share)):03o}"
        os.environ[TERM_VARIABLE] = str(term)
        os.environ["PACELINE_WORKERS"] = str(job.workers)
        _make_folder(job.folder)
        if self._index == 0:
            threading.Thread(target=self._beat, daemon=True).start()
        code = self._work()
        for line in job.environment.teardown:
            subprocess.run(["bash", "-c", line], check=False)
        self._sync()
        if self._told.is_set() and not self._is_over():
            return _KILLED_EXIT_CODE
        if (run.lease / f"{term + 1}.toml").exists():  # another job trains the run
            return code or 1
        return self._end(term) if self._is_over() else RETRY_EXIT_CODE

    def _work(self) -> int:
        newest = self._run.newest_generation
        if self._outcome() is not None:  # all have stopped, to go on later: here
            self._start_over()
        elif newest is not None and newest >= self._generation:
            # Others may train: this pod takes the place of one that was lost.
            self._generation = newest
            code = self._wait_for(PodWorkers(self._run, newest, joins=True))
            if code != TOO_FEW_EXIT_CODE or self._told.is_set() or self._outcome() is not None:
                return code
            self._start_over()
        if not self._others_are_there():
            return RETRY_EXIT_CODE
        return self._wait_for(PodWorkers(self._run, self._generation))

    def _start_over(self) -> None:
        """Begin a new generation: no worker of the last one is left."""
        for ended in (self._run.outcome_file, self._run.requeue_file):
            ended.unlink(missing_ok=True)
        self._sync()
        newest = self._run.newest_generation
        if newest is not None and newest >= self._generation:
            self._generation = newest + 1

    def _others_are_there(self) -> bool:
        """Wait until all pods that must train have a name; return False if this one has to end."""
        is_spare = self._index >= self._job.nodes
        missing = [] if is_spare else [i for i in range(self._job.nodes) if i != self._index]
        said = False
        while missing and not self._told.is_set():
            missing = [each for each in missing if not _has_address(self._host(each))]
            if missing and not said:
                print(f"waiting for pods: {', '.join(map(str, missing))}", file=sys.stderr)
                said = True
            self._told.wait(1 if missing else 0)
        return not missing

    def _host(self, index: int) -> str:
        return f"{self._name}-{index}.{self._name}"

    def _wait_for(self, workers: PodWorkers) -> int:
        """Wait for the workers; when the pod has to end, let them leave or, if all end, save."""
        leaving_since, asked = 0.0, False
        while (code := workers.exit_code()) is None:
            if self._told.wait(_POLL_SECONDS) and not asked and self._outcome() is None:
                if not leaving_since:
                    leaving_since = time.monotonic()
                    write_owned(self._mark(_LEAVING, self._index), "")
                everybody = self._all_have(_LEAVING)
                if everybody or time.monotonic() - leaving_since > _LEAVE_SECONDS:
                    # SIGUSR1: save, stop, and go on later. A killed worker is missed at once.
                    workers.send(signal.SIGUSR1 if everybody else signal.SIGKILL)
                    asked = True
            if self._told.is_set():
                time.sleep(_POLL_SECONDS)
        return code

    def _mark(self, mark: str, index: int) -> Path:
        """Return the file by which a pod tells the others something."""
        return self._run.rendezvous / f"{mark}-{index}"

    def _all_have(self, mark: str) -> bool:
        return all(self._mark(mark, each).exists() for each in range(self._pods))

    def _is_over(self) -> bool:
        """Return whether the run has ended for good: only pods that had to end stop it before."""
        return self._outcome() not in (None, STOPPED_EXIT_CODE)

    def _outcome(self) -> int | None:
        try:
            return int(read_bounded(self._run.outcome_file, _MOST_BYTES))
        except FileNotFoundError:
            return None

    def _end(self, term: int) -> int:
        """Record the run's end, and release its lease; return the run's exit code.

        The end is the last that is recorded: other pods may not have recorded all yet.
        """
        run, code, node = self._run, self._outcome() or 0, socket.gethostname()
        write_owned(self._mark(_RECORDED, self._index), "")
        deadline = time.monotonic() + _RECORD_SECONDS
        while not self._all_have(_RECORDED) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        newest = run.newest_generation
        EventWriter(run.events, node).write(
            Ended(
                time=time.time(),
                node=node,
                generation=max(self._generation, newest or 0),
                exit_code=code,
            )
        )
        lease_store_of(run).release(term)
        return code

    def _sync(self) -> None:
        if self._run.url is not None:
            copy_of(self._run).sync(last=True)

    def _beat(self) -> None:
        """Show that the job lives."""
        while True:
            write_owned(self._run.alive_file, f"{time.time_ns()}\n")
            time.sleep(BATCH_ALIVE_SECONDS)


def _has_address(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _make_folder(folder: Path) -> None:
    """Make the folder that the user submitted from, in which workers start."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PacelineError(
            f"the image has no folder {folder}, from which the run was submitted, and it cannot be"
            f" made: {error.strerror}",
            fix="submit from a folder that the image has, or let its user make folders",
        ) from None


if __name__ == "__main__":
    sys.exit(main())
