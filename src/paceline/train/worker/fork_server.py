"""The fork server of a node's workers: `python -m paceline.train.worker.fork_server RUN`.

Importing torch takes seconds of a core; forking a process that has imported it takes milliseconds,
and the workers share that memory. The launcher therefore starts only this process, and requests
workers over the socket on its standard input. This process uses nothing that a fork would break: no
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
from paceline.schedulers.task_placement import placement
from paceline.specs import Run
from paceline.train.worker.main import work
from paceline.train.worker.threads import limit_threads
from paceline.train.worker.trainer_loading import load_trainer

_REQUEST_BYTES = 4096


def main() -> None:
    """Load the trainer, then fork a worker per request until the launcher closes the socket.

    A request is JSON with the worker's additional environment variables, and comes with the file
    descriptor of its output; the reply is the worker's process id.
    """
    die_with_launcher()
    name_process("server")
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
    # Without it, `placement` would see a single worker, with all CPU cores of the node.
    os.environ["PACELINE_RUN"] = str(run.path)
    job = run.job
    here = placement(job.first_generation)
    limit_threads(here, job.cpus_per_worker)
    with suppress(ImportError):  # the worker reports it
        load_trainer()


def _fork(folder: Path, environment: dict[str, str], output: int, launcher: socket.socket) -> None:
    """Start a worker that becomes the launcher's child.

    An intermediate process forks the worker and exits, so that the launcher, a subreaper, adopts
    it: the launcher sees the worker exit even if the fork server is gone. If the fork server is
    killed, no unknown worker is left: the intermediate process replies before it exits.
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
    while os.getppid() == parent:  # die with the launcher, not with this parent
        time.sleep(0.0001)
    work(folder)


def _take_over(environment: dict[str, str], output: int) -> None:
    """Give a forked process its own environment, process group, streams and random state."""
    os.environ.update(environment)
    # Outside the launcher's process group, so that Ctrl-C reaches workers only through it.
    os.setpgid(0, 0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    os.close(output)
    # NumPy's generator is a copy of the fork server's; Python's own is reseeded by `os.fork`.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


if __name__ == "__main__":
    main()
