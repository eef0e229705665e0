"""Nodes as network namespaces on one switch, and the processes in them that fork workers.

Everything lives in private network and process namespaces, also without root: when the benchmark
ends, the kernel removes all processes, links and namespaces, whatever state they are in.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from paceline.specs.errors import PacelineError
from paceline.testbed.commands import namespace_options, run

SWITCH, OTHER_SWITCH = "switch", "other"
_INSIDE = "PACELINE_CONTROL_PLANE_INSIDE"
_CLONE_NEWNET, _CLONE_NEWNS = 0x40000000, 0x00020000
_OWN_MEMORY = ["mount", "-t", "tmpfs", "own", "/dev/shm"]
_BRIDGE = "type bridge forward_delay 0 mcast_snooping 0"


def enter_namespaces() -> None:
    """Run this command again in private namespaces, unless it already runs there."""
    if os.environ.get(_INSIDE) == "1":
        run(_OWN_MEMORY)
        _batch(["link set lo up"])
        return
    spec = sys.modules["__main__"].__spec__
    assert spec is not None
    command = [sys.executable, "-m", spec.name, *sys.argv[1:]]
    inside = ["unshare", *namespace_options(), *command]
    raise SystemExit(
        subprocess.run(inside, env=os.environ | {_INSIDE: "1"}, check=False).returncode
    )


def address_of(node: int) -> str:
    """Return a node's address."""
    return f"10.77.{node // 250}.{node % 250 + 2}"


def _hardware_address_of(node: int) -> str:
    return f"02:00:00:00:{node // 256:02x}:{node % 256:02x}"


@dataclass
class Node:
    """A node: its first process, which forks workers, and the rig's end of a socket to it."""

    number: int
    pid: int
    control: socket.socket
    is_up: bool = True

    @property
    def port(self) -> str:
        """The switch's end of its cable."""
        return f"n{self.number}"

    def fork_worker(self, row: int, *, joins: bool) -> None:
        """Let the node fork the worker of this row."""
        self.control.sendall(f"{row} {int(joins)}\n".encode())


class Network:
    """The switch, and the cables of all nodes."""

    def __init__(self) -> None:
        _batch([f"link add {SWITCH} {_BRIDGE}", f"link set {SWITCH} up"])

    def add(self, nodes: Sequence[Node]) -> None:
        """Connect nodes, and wait until they have their addresses."""
        lines = []
        for each in nodes:
            lines += [
                f"link add {each.port} type veth peer name eth0"
                f" address {_hardware_address_of(each.number)} netns {each.pid}",
                f"link set {each.port} master {SWITCH} up",
            ]
        _batch(lines)
        for each in nodes:
            each.control.sendall(b"connected\n")
        for each in nodes:
            assert each.control.recv(1) == b"."

    def close(self) -> None:
        """Remove the switches and all cables; the kernel does it late for nodes that have ended."""
        for _, name in socket.if_nameindex():
            if name != "lo":
                with suppress(PacelineError):  # the kernel was faster
                    _batch([f"link delete {name}"])

    def remove(self, nodes: Iterable[Node]) -> None:
        """Take away nodes' cables, at once: the kernel does it late after their end."""
        _batch([f"link delete {each.port}" for each in nodes])

    def set_up(self, nodes: Iterable[Node], *, up: bool) -> None:
        """Switch nodes' links on or off."""
        _batch([f"link set {each.port} {'up' if up else 'down'}" for each in nodes])

    def cut(self, nodes: Iterable[Node]) -> None:
        """Move nodes to a switch of their own."""
        lines = [f"link add {OTHER_SWITCH} {_BRIDGE}", f"link set {OTHER_SWITCH} up"]
        _batch(lines + [f"link set {each.port} master {OTHER_SWITCH}" for each in nodes])

    def mend(self, nodes: Iterable[Node]) -> None:
        """Move nodes back, and remove their switch."""
        lines = [f"link set {each.port} master {SWITCH}" for each in nodes]
        _batch([*lines, f"link delete {OTHER_SWITCH}"])


def fork_node(number: int, nodes: int, run_worker: Callable[[int, str, str, bool], None]) -> Node:
    """Fork the first process of one of so many nodes.

    `run_worker(row, node, address, joins)` runs in its workers.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            _be_node(number, nodes, theirs, run_worker)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    theirs.close()
    assert ours.recv(1) == b"."
    return Node(number, pid, ours)


def _be_node(
    number: int,
    nodes: int,
    control: socket.socket,
    run_worker: Callable[[int, str, str, bool], None],
) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET | _CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no network namespace for a node")
    run(_OWN_MEMORY)
    control.sendall(b".")
    lines = control.makefile()
    assert lines.readline() == "connected\n"
    address = address_of(number)
    # All nodes share one kernel, whose table has room for 1,024 neighbors found by asking. One that
    # asks for this node as it comes up is in the table already.
    neighbors = [
        f"neigh replace {address_of(each)} dev eth0 nud permanent"
        f" lladdr {_hardware_address_of(each)}"
        for each in range(nodes)
        if each != number
    ]
    up = ["link set lo up", f"address add {address}/16 dev eth0", "link set eth0 up"]
    _batch(up + neighbors)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers leave no zombies
    control.sendall(b".")
    for line in lines:
        row, joins = line.split()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            run_worker(int(row), f"node{number:05d}", address, joins == "1")


def _batch(lines: Sequence[str]) -> None:
    run(["ip", "-batch", "-"], feed="\n".join(lines) + "\n")
