"""Where the workers of a machine come from: `python -m paceline.train.worker.fork_server RUN`.

To load torch takes seconds of a core; to fork a process that has loaded it takes milliseconds, and
what was loaded is in memory once. So the launcher starts this process only, and asks it for workers
over the socket that is its standard input. Nothing that cannot be forked is touched here: no
device, no thread, no connection.
"""

import json
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from paceline.cluster.process import die_with_launcher, name_process
from paceline.schedulers.placement import placement
from paceline.specs import Run
from paceline.train.worker.main import work
from paceline.train.worker.threads import limit_threads
from paceline.train.worker.trainer_loading import load_trainer

_REQUEST_BYTES = 4096


def main() -> None:
    """Load what all workers need, then start one for each request until the launcher hangs up.

    A request is JSON of what the worker has in its environment beyond this process's, and comes
    with the descriptor of its output; the answer is the number of its process.
    """
    die_with_launcher()
    name_process("nursery")
    folder = Path(sys.argv[1])
    launcher = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    _load(folder)
    while True:
        request, descriptors, _, _ = socket.recv_fds(launcher, _REQUEST_BYTES, 1)
        if not request:
            return
        (output,) = descriptors
        _fork(folder, json.loads(request), output, launcher)
        os.close(output)


def _load(folder: Path) -> None:
    run = Run.open(folder)
    # Without it, this process would take itself for the only one, and all cores for its own.
    os.environ["PACELINE_RUN"] = str(run.path)
    job = run.job
    here = placement(job.first_generation)
    limit_threads(here, job.cpus_per_worker)
    with suppress(ImportError):  # the worker will say so, in its own words
        load_trainer()


def _fork(folder: Path, environment: dict[str, str], output: int, launcher: socket.socket) -> None:
    """Start a worker, which becomes the launcher's child.

    The launcher adopts it, since the process between it and this one ends: it learns of the
    worker's end by itself, also when this process is gone. Whoever kills this process leaves no
    worker that the launcher does not know of, since the one between answers before it ends.
    """
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return
    parent = os.getpid()
    worker = os.fork()
    if worker:
        launcher.send(str(worker).encode())
        os._exit(0)
    launcher.close()
    _take_over(environment, output)
    while os.getppid() == parent:  # its death is not to be this worker's, the launcher's is
        time.sleep(0.0001)
    work(folder)


def _take_over(environment: dict[str, str], output: int) -> None:
    """Make what was forked a process of its own."""
    os.environ.update(environment)
    # Apart from the launcher's group, so that Ctrl-C reaches workers through the launcher alone.
    os.setpgid(0, 0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    os.close(output)
    # NumPy's generator is in the state of the process it was forked from; Python's own is not.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


if __name__ == "__main__":
    main()
