"""What it takes to watch a large run: events written, read, shown. The workers are EMULATED.

In one process, each of a thousand workers has the telemetry of a real one, which sums its windows
and writes its events into the file of its node as in training. Emulated are the steps, 0.2 s each
by a clock that is set, what their time goes to, and the other workers in a sum. What is written is
then read, watched and reported on by the real parts: files, bytes and times are measured here.
"""

import io
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.common.output import argument_parser
from paceline.observe.digest import Digest
from paceline.observe.event_writer import EventWriter
from paceline.parallel.step.step_clock import Clock
from paceline.report import RunReader, render, view
from paceline.specs import PARTS, Job, Layout, Part, Placement, Plan, Run
from paceline.train.monitor import telemetry
from paceline.train.monitor.telemetry import Telemetry

LIVE_SECONDS = 1.0
"""How much of the run is new when its watching is timed."""


class EmulatedTime:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        """Seconds."""
        return self.now

    perf_counter = time


class EmulatedClock(Clock):
    """What a worker's time would go to: mostly computing; now and then one waits for its data."""

    def __init__(self, step_seconds: float, chance: random.Random) -> None:
        super().__init__()
        self._step_seconds, self._chance = step_seconds, chance

    def take(self) -> dict[Part, float]:
        """Shares by chance."""
        shares = {part: self._chance.random() for part in PARTS if part != "pipeline"}
        scale = self._step_seconds / sum(shares.values())
        return {part: share * scale for part, share in shares.items()}


@dataclass
class EmulatedGroups:
    """One worker's view of the others, who all say what it says."""

    placement: Placement
    summed_bytes: int = 0
    device = torch.device("cpu")
    backend = "emulated"
    interface = SimpleNamespace(name="emulated", address="10.0.0.1")

    def sum_later(self, packed: torch.Tensor) -> None:
        """Sum, and count what a worker gives into the sum."""
        self.summed_bytes += packed.numel() * packed.element_size()
        packed *= self.placement.workers


class EmulatedRun:
    """A run's folder, and workers that write into it."""

    def __init__(self, parent: Path, nodes: int, devices: int, steps: int, seconds: float) -> None:
        job = Job(
            name="emulated",
            nodes=nodes,
            devices_per_node=devices,
            folder=parent,
            python=Path("/usr/bin/python3"),
        )
        self.run = Run.create(parent, job, Plan(layout=Layout(replicas=nodes * devices)))
        self._chance = random.Random(7)
        self._clock = EmulatedTime()
        self._step_seconds = seconds
        self._step = 0
        self.groups = [
            EmulatedGroups(
                Placement(
                    rank, nodes * devices, rank % devices, devices, f"node{rank // devices:05d}"
                )
            )
            for rank in range(nodes * devices)
        ]
        self._workers: list[Telemetry] = []
        with patch.object(telemetry, "time", self._clock):
            for groups in self.groups:
                writer = EventWriter(self.run.events, groups.placement.node)
                worker = Telemetry(groups, writer)  # type: ignore[arg-type]
                worker.clock = EmulatedClock(seconds, self._chance)
                worker.started(parameters=10**9, batch=8192, steps=steps, startup_seconds=60.0)
                self._workers.append(worker)

    def train(self, steps: int) -> None:
        """Take steps on all workers."""
        with patch.object(telemetry, "time", self._clock):
            for _ in range(steps):
                self._step += 1
                edge = self._clock.now + self._step_seconds
                loss = torch.tensor(2.0 + self._chance.random() / self._step)
                for worker in self._workers:
                    self._clock.now = edge + self._chance.random() / 1e4
                    worker.stepped(loss, 1.0, 8192, 8192)
                self._clock.now = edge

    def finish(self) -> None:
        """Say that all is done."""
        with patch.object(telemetry, "time", self._clock):
            for worker in self._workers:
                worker.report_all()
                worker.finished("finished")


def timed(do: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    begin = time.perf_counter()
    found = do()
    return time.perf_counter() - begin, found


def measure(parent: Path, nodes: int, devices: int, steps: int, seconds: float) -> dict[str, float]:
    """All figures of one emulated run."""
    run = EmulatedRun(parent, nodes, devices, steps, seconds)
    live_steps = max(1, round(LIVE_SECONDS / seconds))
    writing, _ = timed(lambda: run.train(steps - live_steps))
    watching = RunReader(run.run)
    first, _ = timed(watching.refresh)
    run.train(live_steps)
    live, state = timed(watching.refresh)
    idle, _ = timed(watching.refresh)
    console = Console(file=io.StringIO(), width=120)
    screen, _ = timed(lambda: console.print(view(state, width=120)))
    run.finish()
    whole, _ = timed(RunReader(run.run).refresh)
    heard: list[Any] = []
    RunReader(run.run, heard.extend).refresh()
    digesting, news = timed(lambda: Digest().take(heard))
    events = len(heard)
    heard.clear()
    rendering, page = timed(lambda: render(run.run))
    files = list(run.run.events.iterdir())
    sizes = [file.stat().st_size for file in files]
    run_seconds = steps * seconds
    return {
        "workers": nodes * devices,
        "nodes": nodes,
        "steps": steps,
        "step_seconds": seconds,
        "files": len(files),
        "events": events,
        "events_per_second": events / run_seconds,
        "events_per_second_and_node": events / run_seconds / nodes,
        "bytes": sum(sizes),
        "bytes_per_event": sum(sizes) / events,
        "bytes_per_step": sum(sizes) / steps,
        "bytes_per_step_and_node": sum(sizes) / steps / nodes,
        "bytes_per_second": sum(sizes) / run_seconds,
        "summed_bytes_per_step_and_worker": run.groups[0].summed_bytes / steps,
        "emulating_seconds": writing,
        "first_refresh_seconds": first,
        "whole_refresh_seconds": whole,
        "read_events_per_second": events / whole,
        "live_refresh_seconds": live,
        "idle_refresh_seconds": idle,
        "screen_seconds": screen,
        "digest_seconds": digesting,
        "observations": len(news),
        "page_seconds": rendering,
        "page_bytes": len(page.encode()),
    }


def show(found: dict[str, float]) -> None:
    """As a table."""
    table = Table(
        title=f"{found['workers']:,.0f} EMULATED workers on {found['nodes']:,.0f} nodes,"
        f" {found['steps']:,.0f} steps of {found['step_seconds']} s",
        show_header=False,
    )
    rows = [
        ("files of events", f"{found['files']:,.0f}"),
        ("events", f"{found['events']:,.0f} of {found['bytes_per_event']:.0f} bytes"),
        (
            "written a second",
            f"{found['events_per_second']:,.0f} events, {found['bytes_per_second'] / 1e6:.2f} MB",
        ),
        (
            "written by a node",
            f"{found['events_per_second_and_node']:.1f} events a second,"
            f" {found['bytes_per_step_and_node']:,.0f} bytes a step",
        ),
        ("written in all", f"{found['bytes'] / 1e6:,.1f} MB"),
        (
            "summed over workers",
            f"{found['summed_bytes_per_step_and_worker']:.0f} bytes a step and worker",
        ),
        (
            "read the whole run",
            f"{found['whole_refresh_seconds']:.2f} s,"
            f" {found['read_events_per_second']:,.0f} events a second",
        ),
        (
            "watch: read one second of it",
            f"{1e3 * found['live_refresh_seconds']:.0f} ms;"
            f" nothing new: {1e3 * found['idle_refresh_seconds']:.1f} ms",
        ),
        ("watch: draw the screen", f"{1e3 * found['screen_seconds']:.0f} ms"),
        (
            "listeners: reduce the whole run",
            f"{found['digest_seconds']:.2f} s, {found['observations']:,.0f} observations",
        ),
        (
            "report: read and draw",
            f"{found['page_seconds']:.2f} s, {found['page_bytes'] / 1e6:.2f} MB",
        ),
    ]
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--nodes", type=int, default=125)
    parser.add_argument("--devices", type=int, default=8, help="workers of a node")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.nodes, given.devices, given.steps, given.step_seconds)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))
    show(found)


if __name__ == "__main__":
    main()
