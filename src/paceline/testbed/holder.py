"""The holder process of a testbed: `python -m paceline.testbed.holder STATE_FOLDER`.

It is the first process of a PID namespace: when it ends, the kernel ends every daemon and job in
it, and removes the namespaces, links and mounts. Until its parent sends "keep", it ends when its
standard input closes, so that an `up` killed halfway leaves nothing running.
"""

import json
import os
import re
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.specs.errors import PacelineError
from paceline.specs.owned_files import write_owned
from paceline.testbed import testbed_spec
from paceline.testbed.commands import KEEP, run
from paceline.testbed.network import Link, create_switch
from paceline.testbed.node_init import reap_until_exit_of
from paceline.testbed.nodes import Node
from paceline.testbed.slurm import daemons
from paceline.testbed.slurm.accounting import start_accounting
from paceline.testbed.slurm.settings import write_settings
from paceline.testbed.state_folder import StateFolder

_REQUEST_SECONDS = 5.0
_LONGEST_REQUEST_BYTES = 64 * 1024


def main(state_path: str) -> None:
    """Reap orphans, as the first process must, while a child runs the testbed."""
    child = os.fork()
    if child == 0:
        threading.Thread(target=_end_unless_kept, daemon=True).start()
        _hold(StateFolder(Path(state_path)))
    else:
        reap_until_exit_of(child)


def _end_unless_kept() -> None:
    if os.read(sys.stdin.fileno(), len(KEEP)) != KEEP:
        os._exit(1)


def _hold(state: StateFolder) -> None:
    os.umask(0o077)  # only the owner may use the sockets, and read what the daemons write
    asked = testbed_spec.TestbedSpec(**json.loads((state.path / "spec.json").read_text()))
    os.environ["SLURM_CONF"] = str(state.slurm_conf)
    socket.sethostname(testbed_spec.HEAD)
    _bind_name_lookup(state, asked.nodes)
    create_switch()
    nodes = _nodes(asked, state)
    for node in nodes.values():
        node.switch_on()  # all nodes first, so that they start in parallel
    write_settings(state, asked)
    daemons.start_munge(state)
    if asked.accounting:
        start_accounting(state)
    daemons.start_controller(state)
    for node in nodes.values():
        node.boot()
    _serve(state, nodes)


def _nodes(asked: testbed_spec.TestbedSpec, state: StateFolder) -> dict[str, Node]:
    rate = testbed_spec.bits_per_second(asked.link) if asked.link else None
    delay = testbed_spec.delay_seconds(asked.delay) if asked.delay else 0.0
    names = testbed_spec.node_names(asked.nodes)
    shares = testbed_spec.cores_of_nodes(asked.nodes, sorted(os.sched_getaffinity(0)))
    return {
        name: Node(name, cores, Link(rate, delay), state, asked.scratch)
        for name, cores in zip(names, shares, strict=True)
    }


def _bind_name_lookup(state: StateFolder, nodes: int) -> None:
    """Resolve host names from the testbed's own hosts file only."""
    hosts = state.path / "hosts"
    lines = ["127.0.0.1 localhost", f"{testbed_spec.HEAD_ADDRESS} {testbed_spec.HEAD}"]
    lines += [
        f"{testbed_spec.node_address(name)} {name}" for name in testbed_spec.node_names(nodes)
    ]
    write_owned(hosts, "\n".join(lines) + "\n")
    sources = state.path / "nsswitch.conf"
    system_sources = Path("/etc/nsswitch.conf")
    if system_sources.exists():
        kept = re.sub(r"(?m)^hosts:.*$", "hosts: files", system_sources.read_text())
        write_owned(sources, kept)
        run(["mount", "--bind", str(sources), str(system_sources)])
    run(["mount", "--bind", str(hosts), "/etc/hosts"])


def _serve(state: StateFolder, nodes: dict[str, Node]) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(state.socket))
        server.listen()
        while True:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(_REQUEST_SECONDS)
                try:
                    _answer(connection, nodes)
                except OSError as error:
                    print(f"a request was not answered: {error}", file=sys.stderr, flush=True)


def _answer(connection: socket.socket, nodes: dict[str, Node]) -> None:
    with connection.makefile("rw", encoding="utf-8") as stream:
        line = stream.readline(_LONGEST_REQUEST_BYTES)
        if not line:
            return  # the client only checked that the holder answers
        try:
            reply = {"answer": _do(json.loads(line), nodes)}
        except PacelineError as error:
            reply = {"error": {"problem": error.problem, "fix": error.fix}}
        except Exception as error:  # one request must not end the whole testbed
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            reply = {"error": {"problem": what, "fix": "this is a bug: see holder.log"}}
        stream.write(json.dumps(reply) + "\n")


def _do(request: dict[str, Any], nodes: dict[str, Node]) -> Any:
    actions: dict[str, Callable[[], Any]] = {
        "status": lambda: _status(nodes),
        "locate": lambda: _locate(_node(request, nodes)),
        "link": lambda: _node(request, nodes).change_link(**request["change"]),
        "stop": lambda: _node(request, nodes).cut_power(),
        "start": lambda: _start(_node(request, nodes)),
    }
    return actions[request["do"]]()


def _node(request: dict[str, Any], nodes: dict[str, Node]) -> Node:
    name = request["node"]
    if name not in nodes:
        raise PacelineError(
            f"there is no node {name!r} in this testbed",
            fix=f"choose one of {', '.join(nodes)}",
        )
    return nodes[name]


def _status(nodes: dict[str, Node]) -> list[dict[str, Any]]:
    states = daemons.node_states()
    return [asdict(node.status(states.get(name, "unknown"))) for name, node in nodes.items()]


def _locate(node: Node) -> dict[str, Any]:
    return {"process_id": node.process_id, "cores": node.cores}


def _start(node: Node) -> None:
    node.switch_on()
    daemons.mark_down(node.name)
    node.boot()


if __name__ == "__main__":
    main(sys.argv[1])
