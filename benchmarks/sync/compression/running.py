"""Starts the ranks, on a testbed or here, and reads what they found."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.common.processes import environment
from paceline.specs import Job, Layout, Plan, Run
from paceline.testbed import client
from paceline.testbed.testbed_spec import TestbedSpec, node_names

WORKER = "benchmarks.sync.compression.worker"
NAME = "compression-box"

Wanted = dict[str, Any]
Found = dict[str, Any]


@dataclass(frozen=True)
class Box:
    """A testbed that is up."""

    nodes: int

    def run(self, wanted: Sequence[Wanted], words: str) -> list[Found]:
        """What ranks on the nodes found, one on each."""
        srun = [
            *("srun", f"--nodes={self.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"),
        ]
        start = [*client.command_prefix(NAME), *srun], client.environment(NAME)
        return _found([start], self.nodes, wanted, words)

    def cut_into_frames(self) -> None:
        """Let the nodes' interfaces count frames as an Ethernet has them."""
        for node in node_names(self.nodes):
            words = ["ip", "link", "set", "eth0", "gso_max_segs", "1"]
            subprocess.run([*client.command_prefix(NAME, node), *words], check=True)


@contextmanager
def testbed(nodes: int, link: str) -> Iterator[Box]:
    """A testbed, taken down afterwards."""
    client.up(TestbedSpec(name=NAME, nodes=nodes, link=link))
    try:
        yield Box(nodes)
    finally:
        client.down(NAME)


def here(workers: int, wanted: Sequence[Wanted], words: str) -> list[Found]:
    """What ranks on this machine found, over loopback."""
    placement = {"PACELINE_WORKERS": str(workers)}
    starts: list[tuple[list[str], dict[str, str]]] = [
        ([], placement | {"PACELINE_RANK": str(rank)}) for rank in range(workers)
    ]
    return _found(starts, 1, wanted, words)


def _found(
    starts: Sequence[tuple[list[str], dict[str, str]]],
    nodes: int,
    wanted: Sequence[Wanted],
    words: str,
) -> list[Found]:
    """Start processes, each with words before its command and variables of its own."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        run = _meeting_place(folder, nodes)
        asked, found = folder / "wanted.json", folder / "found.jsonl"
        asked.write_text(json.dumps(wanted))
        found.touch()
        log = stack.enter_context((folder / "log").open("w"))
        processes = [
            stack.enter_context(
                _process(
                    [*before, sys.executable, "-m", WORKER, str(asked), str(found)],
                    variables | {"PACELINE_RUN": str(run.path), "OMP_NUM_THREADS": "1"},
                    log,
                )
            )
            for before, variables in starts
        ]
        for number in track(range(len(wanted)), words, console=Console(stderr=True)):
            while found.read_text().count("\n") <= number:
                if any(process.poll() is not None for process in processes):
                    if found.read_text().count("\n") > number:
                        break
                    raise SystemExit(f"a rank ended early:\n{(folder / 'log').read_text()[-4000:]}")
                time.sleep(0.05)
        return [json.loads(line) for line in found.read_text().splitlines()]


@contextmanager
def _process(
    command: list[str], variables: dict[str, str], log: Any
) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(
        command,
        env=environment(variables),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _meeting_place(folder: Path, nodes: int) -> Run:
    """The folder of a run, in which workers find each other; what they train is not said there."""
    job = Job(
        name="compression",
        train=Path(__file__),
        nodes=nodes,
        folder=folder,
        python=Path(sys.executable),
    )
    return Run.create(folder / "run", job, Plan(layout=Layout()))
