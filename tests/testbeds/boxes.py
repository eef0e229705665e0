"""What the testbed's tests share: running things in nodes, and looking for what is left."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline import testbed
from paceline.testbed.state_folder import state_folder

TRAFFIC = [sys.executable, "-I", "-S", str(Path(__file__).parent / "traffic.py")]
SHARED = "shared-box"


def run_in(name: str, node: str, *command: str, seconds: float = 40) -> str:
    done = subprocess.run(
        [*testbed.command_prefix(name, node), *command],
        env={**os.environ, **testbed.environment(name)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.02)


def slurm_state(name: str, node: str) -> str:
    return next(each.slurm_state for each in testbed.status(name).nodes if each.name == node)


@contextmanager
def started_in(name: str, node: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a node that runs until the block is left."""
    process = subprocess.Popen(
        [*testbed.command_prefix(name, node), *command],
        env={**os.environ, **testbed.environment(name)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


@dataclass(frozen=True)
class Traces:
    """What of a testbed can be seen on the machine."""

    processes: frozenset[int]
    namespaces: frozenset[str]
    mounts: tuple[str, ...]
    devices: tuple[str, ...]
    has_folder: bool

    def is_nothing_left(self, while_up: "Traces | None" = None) -> bool:
        """Whether it is all gone, also the namespaces that were seen while it was up."""
        seen = while_up.namespaces if while_up else frozenset()
        remaining = seen & _namespaces(_all_process_ids())
        return not (self.processes or self.mounts or self.devices or self.has_folder or remaining)


def traces_of(name: str) -> Traces:
    """Look for a testbed's processes by its folder in their arguments and environments."""
    path = state_folder(name).path
    needle = os.fsencode(path)
    processes = [
        pid
        for pid in _all_process_ids()
        if needle in _bytes(f"/proc/{pid}/cmdline") or needle in _bytes(f"/proc/{pid}/environ")
    ]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    ours = ("switch", "eth0@", "n1", "n2", "n3", "n4")
    return Traces(
        processes=frozenset(processes),
        namespaces=_namespaces(processes) - _namespaces([os.getpid()]),
        mounts=tuple(line for line in mounts if str(path) in line or " nsfs " in line),
        devices=tuple(name for _, name in socket.if_nameindex() if name.startswith(ours)),
        has_folder=path.exists(),
    )


def _all_process_ids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _namespaces(processes: list[int]) -> frozenset[str]:
    found = set()
    for pid in processes:
        for kind in ("net", "mnt", "uts", "pid", "user"):
            try:
                found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
            except OSError:
                continue  # it ended, or is a kernel thread
    return frozenset(found)


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
