"""The daemons of the testbed's Slurm on the head, and the states of its nodes."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping

from paceline.specs.errors import PacelineError
from paceline.specs.owned_files import open_owned
from paceline.testbed.commands import run
from paceline.testbed.slurm.settings import CONTROLLER_PORT
from paceline.testbed.state_folder import StateFolder
from paceline.testbed.testbed_spec import HEAD_ADDRESS

_START_SECONDS = 20.0


def start_munge(state: StateFolder) -> None:
    """Start munged on the head; it authenticates the messages of all other daemons."""
    munged = [
        "munged",
        "--foreground",
        "--force",  # parent folders may have modes that munged rejects
        "--num-threads=2",
        f"--socket={state.munge_socket}",
        *(f"--{kind}-file={state.path / 'munge'}.{kind}" for kind in ("key", "pid", "seed")),
    ]
    start_daemon(munged, state, is_ready=state.munge_socket.exists)


def start_controller(state: StateFolder) -> None:
    """Start slurmctld on the head; return when it accepts connections."""
    start_daemon(["slurmctld", "-D"], state, is_ready=lambda: listens(CONTROLLER_PORT))


def node_states() -> dict[str, str]:
    """Return Slurm's state of each node: idle, allocated, down, ...; * marks one that is silent."""
    lines = run(["sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T"])
    return dict(line.split() for line in lines.splitlines())


def mark_down(node: str) -> None:
    """Set a node down in Slurm, which may not have noticed; its next registration resets this."""
    run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power was cut"])


def start_daemon(
    command: list[str],
    state: StateFolder,
    *,
    is_ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start a daemon that logs into the testbed's folder, and return when it is ready."""
    program = command[0]
    with open_owned(state.log(program), "ab") as log:
        daemon = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | (environment or {}),
        )
    deadline = time.monotonic() + _START_SECONDS
    while not is_ready():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise PacelineError(
                f"{program} did not start", fix=f"see the last lines of {program}.log"
            )
        time.sleep(0.01)


def listens(port: int) -> bool:
    """Whether a daemon on the head accepts connections."""
    try:
        socket.create_connection((HEAD_ADDRESS, port), timeout=1).close()
    except OSError:
        return False
    return True
