"""Nodes for `recovery.py`: a network namespace each, on a switch in one of its own.

Nothing leads out of them. A node that is lost goes silent at once: its cable is cut before its
processes are killed, so that no reset reaches the others.
"""

import os
import signal
import subprocess
from contextlib import suppress
from types import TracebackType
from typing import Self

HEAD_ADDRESS = "10.77.0.254"


class Nodes:
    """So many nodes and a head, as long as the block lasts."""

    def __init__(self, count: int) -> None:
        self._switch = f"recovery-{os.getpid()}"
        self._names = [f"{self._switch}-{node}" for node in range(count)]

    def __enter__(self) -> Self:
        """Make them."""
        try:
            _ip("netns", "add", self._switch)
            inside = ("-n", self._switch, "link")
            _ip(*inside, "add", "switch", "type", "bridge", "forward_delay", "0")
            _ip("-n", self._switch, "address", "add", f"{HEAD_ADDRESS}/24", "dev", "switch")
            for device in ("lo", "switch"):
                _ip(*inside, "set", device, "up")
            for node, name in enumerate(self._names):
                _ip("netns", "add", name)
                end = ("peer", "name", "eth0", "netns", name)
                _ip(*inside, "add", f"port{node}", "type", "veth", *end)
                _ip(*inside, "set", f"port{node}", "master", "switch", "up")
                _ip("-n", name, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
                for device in ("lo", "eth0"):
                    _ip("-n", name, "link", "set", device, "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take them away; what runs in them was ended before."""
        for name in (*self._names, self._switch):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)

    def address(self, node: int) -> str:
        """Of a node, on its only interface, `eth0`."""
        return f"10.77.0.{node + 1}"

    def inside(self, node: int | None) -> list[str]:
        """What a command is led by, to run in a node, or on the head."""
        name = self._switch if node is None else self._names[node]
        return ["nsenter", f"--net=/run/netns/{name}"]

    def lose(self, node: int) -> None:
        """Cut the power of a node."""
        _ip("-n", self._switch, "link", "set", f"port{node}", "down")
        for process in _ip("netns", "pids", self._names[node]).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=15)
    return done.stdout
