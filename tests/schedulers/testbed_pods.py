"""Nodes of a testbed that start pods of the stand-in: each with a disk and a name of its own."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from paceline import testbed
from paceline.testbed.state_folder import state_folder
from paceline.testbed.testbed_spec import node_address
from schedulers.kubernetes_stand_in import Pod

_LISTEN = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"x"], [listener.fileno()])
"""


class TestbedNode:
    """A node of a testbed, whose scratch folder stands for a pod's `emptyDir`."""

    __test__ = False

    def __init__(self, box: str, name: str, scratch: Path, logs: Path) -> None:
        self._box, self.name, self._scratch, self._logs = box, name, scratch, logs

    def start(self, pod: Pod) -> "subprocess.Popen[bytes]":
        mounts = {
            each["name"]: each["mountPath"] for each in pod.spec["containers"][0]["volumeMounts"]
        }
        assert mounts == {"scratch": str(self._scratch), "shared-memory": "/dev/shm"}
        subdomain = pod.spec["subdomain"]
        self._names({f"{pod.hostname}.{subdomain}": node_address(self.name), pod.hostname: None})
        # The image: this Python and this Paceline. Nothing else of the caller's environment.
        image = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": "/root",
        }
        wanted = [f"{key}={value}" for key, value in (image | pod.variables()).items()]
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', pod.hostname]
        fresh = ["sh", "-c", f'rm -rf {self._scratch}/* && exec "$@"', "fresh"]
        output = (self._logs / f"{pod.hostname}-{pod.identity[:5]}.log").open("wb")
        with output:
            return subprocess.Popen(
                [
                    *testbed.command_prefix(self._box, self.name),
                    *(*fresh, *named, "env", "-i", *wanted, *pod.command()),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def signal(self, pod: Pod, number: int) -> None:
        """Signal the pod's first process, which `nsenter` started; to kill, kill all."""
        assert pod.process is not None
        with suppress(psutil.NoSuchProcess, IndexError):
            process = psutil.Process(pod.process.pid)
            if number == signal.SIGKILL:
                for each in process.children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
                return
            while process.name() == "nsenter":
                process = process.children()[0]
            process.send_signal(number)

    def ended(self, pod: Pod) -> None:
        self._names({f"{pod.hostname}.{pod.spec['subdomain']}": None})

    def _names(self, changes: dict[str, str | None]) -> None:
        """Change what names of pods mean, in the hosts file that all nodes have mounted."""
        hosts = state_folder(self._box).path / "hosts"
        kept = [line for line in hosts.read_text().splitlines() if line.split()[-1] not in changes]
        kept += [f"{address} {name}" for name, address in changes.items() if address]
        with hosts.open("r+") as file:  # the same file: a new one would not be mounted
            file.write("\n".join(kept) + "\n")
            file.truncate()


def listener_on_head(box: str) -> socket.socket:
    """Return a socket that listens on the loopback of the testbed's head."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        command = [*testbed.command_prefix(box), sys.executable, "-c", _LISTEN, str(number)]
        subprocess.run(command, pass_fds=[number], check=True, timeout=30)
        _, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=descriptor)
