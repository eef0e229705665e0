"""Repeat a few of the documented figures: `make reproduce` prints one table, in about 5 minutes.

Each row is a benchmark with few rounds, beside the figure of the page that documents it. Ratios and
counts carry over to other machines; rates do not.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Figure:
    """A figure of a benchmark, and the text that documents it."""

    question: str
    kind: str
    """measured, simulated or computed."""
    read: Callable[[Any], str]
    """The figure in the benchmark's JSON."""
    page: str
    documented: str
    """As the page has it."""


def spread(row: dict[str, float], name: str) -> str:
    """Return a median with its interval."""
    return f"{row[name]:.3f} ({row[f'{name}_low']:.3f}–{row[f'{name}_high']:.3f})"


BENCHMARKS: dict[str, list[Figure]] = {
    "benchmarks.overhead.engine --rounds 20 --steps 3": [
        Figure(
            *("speed of replicas, relative to plain DDP", "measured"),
            lambda found: spread(found["replicas"], "paceline"),
            *("overhead.md", "**0.966** (0.946–0.975)"),
        ),
        Figure(
            *("… plain DDP, relative to itself (noise)", "measured"),
            lambda found: spread(found["replicas"], "null"),
            *("overhead.md", "1.003 (0.989–1.016)"),
        ),
        Figure(
            *("speed of shards, relative to plain FSDP2", "measured"),
            lambda found: spread(found["shards"], "paceline"),
            *("overhead.md", "**0.977** (0.955–1.001)"),
        ),
        Figure(
            *("… plain FSDP2, relative to itself (noise)", "measured"),
            lambda found: spread(found["shards"], "null"),
            *("overhead.md", "1.005\n(0.964–1.029)"),
        ),
    ],
    "benchmarks.overhead.host_cost --rounds 20": [
        Figure(
            *("CPU time added to a tiny step, one worker, relative to the plain loop", "measured"),
            lambda found: f"{found['1']['added'] / found['1']['bare']:.2f}",
            *("overhead.md", "0.32"),
        ),
        Figure(
            *("… in µs: the loop, added to it, added by the loop itself (noise)", "measured"),
            lambda found: " ".join(f"{found['1'][each]:.0f}" for each in ("bare", "added", "null")),
            *("overhead.md", "815 | **259** | 10"),
        ),
    ],
    "benchmarks.sync.consensus": [
        Figure(
            *("largest deviation of gossip from its prediction", "simulated"),
            lambda found: f"{max(each['deviation'] for each in found['curves']):.1%}",
            *("sync.md", "within 4 %"),
        ),
    ],
    "benchmarks.planner.speed": [
        Figure(
            *("layouts that the planner scores in a second of one core", "measured"),
            lambda found: f"{found['layouts_per_second'] / 1e6:.2f} million",
            *("planning.md", "0.9 million layouts per second"),
        ),
    ],
}


def run(command: str) -> Any:
    """Run a benchmark and return its JSON."""
    module, *options = command.split()
    done = subprocess.run(
        [sys.executable, "-m", module, *options, "--json"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LONGEST_SECONDS,
        check=True,
    )
    return json.loads(done.stdout)


def rows(benchmarks: dict[str, list[Figure]]) -> Iterator[str]:
    """Run each benchmark and yield a line of Markdown for each figure."""
    for command, figures in benchmarks.items():
        print(f"python -m {command}", file=sys.stderr, flush=True)
        load, began = os.getloadavg()[0], time.monotonic()
        try:
            found = run(command)
        except subprocess.TimeoutExpired:
            found = None
        took = f"{time.monotonic() - began:.0f} s at load {load:.1f}"
        for figure in figures:
            documented = figure.documented.replace("\n", " ").replace(" | ", " ").replace("**", "")
            here = f"not within {LONGEST_SECONDS} s" if found is None else figure.read(found)
            yield f"| {figure.question} | {figure.kind} | {documented} | {here} | {took} |"


def main() -> None:
    """Print the table with what it was measured on."""
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}), Python"
        f" {platform.python_version()}, torch {version('torch')}, Paceline {version('paceline')}\n"
    )
    print("| figure | kind | documented | here | took |\n|---|---|---|---|---|")
    for row in rows(BENCHMARKS):
        print(row, flush=True)


if __name__ == "__main__":
    main()
