"""Client of a testbed: start it, query it, change it, run commands in it, and shut it down."""

import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from paceline.schedulers.scheduler import SCHEDULERS, Scheduler
from paceline.schedulers.site import Site
from paceline.specs.errors import PacelineError
from paceline.testbed.commands import end_holders, holders_of
from paceline.testbed.requests import connect, request
from paceline.testbed.requirements import require
from paceline.testbed.startup import HolderStart
from paceline.testbed.state_folder import (
    StateFolder,
    parent_folder,
    remove_empty_parent_folder,
    state_folder,
)
from paceline.testbed.status import NodeStatus, Status
from paceline.testbed.testbed_spec import (
    HEAD,
    HEAD_ADDRESS,
    TestbedSpec,
    bits_per_second,
    delay_seconds,
    lost_part,
)

SCHEDULER = "slurm"
"""The scheduler that runs in every testbed."""
_START_SECONDS = 60.0
_SECONDS_MORE_PER_NODE = 3.0
_USABLE = ("idle", "mixed", "allocated", "completing")


def up(spec: TestbedSpec, on_progress: Callable[[str], None] = lambda message: None) -> Status:
    """Start a testbed; return its status when Slurm reports every node idle."""
    require(delay=spec.delay is not None, accounting=spec.accounting)
    state = state_folder(spec.name)
    deadline = time.monotonic() + _START_SECONDS + spec.nodes * _SECONDS_MORE_PER_NODE
    on_progress("starting the switch, the nodes and Slurm")
    with HolderStart(state, spec) as start:
        start.wait_until_it_answers(deadline)
        ready = -1
        while ready < spec.nodes:
            found = status(spec.name)
            lost = [node.name for node in found.nodes if node.state == "down"]
            if lost or time.monotonic() > deadline:
                raise start.failure(f"{lost[0]} went down" if lost else "not all nodes are idle")
            now_ready = sum(node.slurm_state == "idle" for node in found.nodes)
            if now_ready != ready:
                ready = now_ready
                on_progress(f"{ready} of {spec.nodes} nodes are idle")
            time.sleep(0.1 if ready < spec.nodes else 0.0)
        start.keep()
    return found


def down(name: str) -> None:
    """Shut down a testbed in any state, and remove its processes and files."""
    state = state_folder(name)
    if not state.exists() and not holders_of(state.path):
        raise _not_up(name, state)
    end_holders(state.path)
    state.remove()
    remove_empty_parent_folder()


def status(name: str) -> Status:
    """Return the status of a testbed and its nodes."""
    nodes = _ask(name, {"do": "status"})
    return Status(
        name=name,
        head_address=HEAD_ADDRESS,
        rootless=os.geteuid() != 0,
        nodes=[NodeStatus(**node) for node in nodes],
    )


def running() -> list[str]:
    """Return the names of this user's running testbeds."""
    try:
        folders = sorted(parent_folder().iterdir())
    except FileNotFoundError:
        return []
    return [folder.name for folder in folders if holders_of(folder)]


def command_prefix(name: str, node: str = HEAD) -> list[str]:
    """Return the prefix that runs a command on a node, in the current working directory.

    Ending the prefix's process ends the command, too.
    """
    head = [
        "nsenter",
        f"--target={_holder_process_id(name)}",
        *(["--user", "--preserve-credentials"] if os.geteuid() != 0 else []),
        *("--net", "--uts", "--mount", "--pid", "--"),
    ]
    # nsenter forks to enter a PID namespace, and forwards no signals.
    tied_to_parent = ["setpriv", "--pdeathsig", "TERM"]
    in_this_folder = ["env", f"--chdir={os.getcwd()}"]  # noqa: PTH109 - Path.cwd() is the same
    if node == HEAD:
        return [*head, *tied_to_parent, *in_this_folder]
    place = _ask(name, {"do": "locate", "node": node})
    process_id = place["process_id"]
    into_node = [
        "nsenter",
        f"--target={process_id}",
        *("--net", "--uts", "--mount"),
        f"--pid=/proc/{process_id}/ns/pid_for_children",
        "--",
    ]
    share = ["taskset", "--cpu-list", ",".join(map(str, place["cores"]))]
    return [*head, *tied_to_parent, *into_node, *tied_to_parent, *share, *in_this_folder]


def scheduler(name: str) -> Scheduler:
    """Return the scheduler of a testbed."""
    return SCHEDULERS.get(SCHEDULER).at(
        Site(
            name=f"the testbed {name}",
            testbed=name,
            prefix=tuple(command_prefix(name)),
            environment=environment(name),
            shares_files=True,
        )
    )


def environment(name: str) -> dict[str, str]:
    """Return the extra environment variables for Slurm commands inside the testbed."""
    state = state_folder(name)
    if not state.slurm_conf.exists():
        raise _not_up(name, state)
    return {"SLURM_CONF": str(state.slurm_conf)}


def link(
    name: str,
    node: str,
    *,
    rate: str | None = None,
    delay: str | None = None,
    loss: str | None = None,
    down: bool = False,
    up: bool = False,
) -> None:
    """Change a node's link while jobs run: set its rate, its delay in each direction or its loss
    (fraction of frames), or take it down or up."""
    if down and up:
        raise PacelineError("--down and --up were given together", fix="give --down or --up")
    if rate is None and delay is None and loss is None and not (down or up):
        raise PacelineError(
            "no change of the link was given",
            fix="give at least one of --rate 100mbit, --delay 20ms, --loss 2%, --down, --up",
        )
    change = {
        "rate_bits_per_second": None if rate is None else bits_per_second(rate),
        "delay_seconds": None if delay is None else delay_seconds(delay),
        "loss": None if loss is None else lost_part(loss),
        "up": up if down or up else None,
    }
    _ask(name, {"do": "link", "node": node, "change": change})


def stop(name: str, node: str) -> None:
    """Cut a node's power: all its processes die at once; Slurm notices in about 10 s."""
    _ask(name, {"do": "stop", "node": node})


def start(name: str, node: str) -> None:
    """Start a stopped node; return when Slurm uses it again."""
    _ask(name, {"do": "start", "node": node})
    deadline = time.monotonic() + _START_SECONDS
    while True:
        found = next(each for each in status(name).nodes if each.name == node)
        if found.slurm_state in _USABLE:
            return
        if found.state == "down" or time.monotonic() > deadline:
            raise PacelineError(
                f"node {node} did not come back:\n{state_folder(name).last_log_lines()}",
                fix=f"stop it and start it again, or: paceline testbed down --name {name}",
            )
        time.sleep(0.1)


def _ask(name: str, message: dict[str, Any]) -> Any:
    state = state_folder(name)
    try:
        return request(state.socket, message)
    except (FileNotFoundError, ConnectionRefusedError):
        raise _not_up(name, state) from None


def _holder_process_id(name: str) -> int:
    state = state_folder(name)
    try:
        with connect(state.socket) as connection:
            credentials = connection.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
            )
    except (FileNotFoundError, ConnectionRefusedError):
        raise _not_up(name, state) from None
    process_id: int = struct.unpack("3i", credentials)[0]
    return process_id


def _not_up(name: str, state: StateFolder) -> PacelineError:
    if holders_of(state.path):
        return PacelineError(
            f"the testbed {name!r} is still starting", fix="wait for `paceline testbed up`"
        )
    if state.exists():
        return PacelineError(
            f"the testbed {name!r} is not up; its last start or run was interrupted",
            fix=f"remove it: paceline testbed down --name {name}",
        )
    others = running()
    return PacelineError(
        f"there is no testbed {name!r}",
        fix=(f"use --name with one of {', '.join(others)}, or start it" if others else "start it")
        + f": paceline testbed up --name {name}",
    )
