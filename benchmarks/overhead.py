"""What Paceline costs: the same job under Paceline and in a bare DDP script, interleaved.

    python benchmarks/overhead.py [--pairs 7] [--json]

Two workers on this machine's CPU. Throughput: samples per second after the first ten steps, by the
wall clock of worker 0. Start-up: from typing the command to the end of the first step, against two
ways to start the bare script: its two processes at once, which nobody types, and torchrun. As the
null comparison the bare script runs twice in every round: what differs there is noise.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from paceline.specs import Run, Steps, event_adapter

JOB = Path(__file__).parent / "overhead_job"
WORKERS = 2
WARM_UP_STEPS = 10
LAYOUT_OPTIONS = {"pipeline": ("--micro-batch", 8, "--schedule", "1f1b")}


@dataclass(frozen=True)
class Measured:
    """One run of the job."""

    startup_seconds: float
    steps_per_second: float


class Cannot(RuntimeError):
    """A way that did not end well, with the last line it said."""


def under_paceline(folder: Path, layout: str = "replicas") -> Measured:
    """The job by `paceline run`, with two of what the layout names."""
    layout_options = [f"--{layout}", WORKERS, *LAYOUT_OPTIONS.get(layout, ())]
    return paceline_run([JOB / "train.py", *layout_options], folder)


def paceline_run(words: Sequence[object], folder: Path) -> Measured:
    """What `paceline run WORDS` takes."""
    command = [sys.executable, "-m", "paceline", "run", *words, "--quiet"]
    begin = time.time()
    _end_well(
        [_start([*command, "--runs", folder / "runs"], folder / "stderr", {})], folder / "stderr"
    )
    (path,) = (folder / "runs").iterdir()
    events = [
        event_adapter.validate_json(line)
        for file in Run(path).events.iterdir()
        for line in file.read_text().splitlines()
    ]
    steps = [event for event in events if isinstance(event, Steps)]
    return _measured(begin, steps[0].time, [second for event in steps for second in event.seconds])


def bare(folder: Path, layout: str = "replicas", script: str = "bare.py") -> Measured:
    """The two processes of a script started directly."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    output, errors = folder / "bare.json", folder / "stderr"
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    sizes = {"WORLD_SIZE": WORKERS, "LOCAL_WORLD_SIZE": WORKERS}
    begin = time.time()
    ranks = [
        _start(
            [sys.executable, JOB / script, output, layout],
            errors,
            common | sizes | {"RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in range(WORKERS)
    ]
    _end_well(ranks, errors)
    return _read_bare(begin, output)


def under_torchrun(folder: Path) -> Measured:
    output = folder / "torchrun.json"
    begin = time.time()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run(
        [*command, f"--nproc-per-node={WORKERS}", JOB / "bare.py", output, "replicas"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    return _read_bare(begin, output)


def _start(
    command: Sequence[object], errors: Path, environment: Mapping[str, object]
) -> "subprocess.Popen[bytes]":
    with errors.open("ab") as file:
        return subprocess.Popen(
            [str(part) for part in command],
            env=os.environ | {name: str(value) for name, value in environment.items()},
            stderr=file,
        )


def _end_well(processes: "list[subprocess.Popen[bytes]]", errors: Path) -> None:
    try:
        codes = [process.wait(300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        lines = (line.strip("│╰╯─ ") for line in errors.read_text().splitlines())
        said = [re.sub(r"^\[rank\d+\]: ", "", line) for line in lines if line]
        raise Cannot(said[-1] if said else "it said nothing")


def _read_bare(begin: float, output: Path) -> Measured:
    said = json.loads(output.read_text())
    return _measured(begin, said["first_step"], said["seconds"])


def _measured(begin: float, first_step: float, seconds: list[float]) -> Measured:
    steady = seconds[WARM_UP_STEPS:]
    return Measured(first_step - begin, len(steady) / sum(steady))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ways: dict[str, Callable[[Path], Measured]] = {
        "bare": bare,
        "paceline": under_paceline,
        "bare again": bare,
        "torchrun": under_torchrun,
    }
    rounds: list[dict[str, Measured]] = []
    console = Console(stderr=True)
    for number in track(range(options.pairs), "measuring", console=console, disable=options.json):
        order = list(ways) if number % 2 == 0 else list(ways)[::-1]
        measured: dict[str, Measured] = {}
        for way in order:
            with tempfile.TemporaryDirectory() as folder:
                measured[way] = ways[way](Path(folder))
        rounds.append(measured)
    _print(rounds, as_json=options.json)


def _print(rounds: list[dict[str, Measured]], *, as_json: bool) -> None:
    def throughput(way: str) -> float:
        return statistics.median(
            each[way].steps_per_second / each["bare"].steps_per_second for each in rounds
        )

    def startup(way: str, base: str) -> float:
        return statistics.median(
            each[way].startup_seconds / each[base].startup_seconds for each in rounds
        )

    figures = {
        "throughput_ratio": throughput("paceline"),
        "throughput_ratio_null": throughput("bare again"),
        "startup_ratio": startup("paceline", "bare"),
        "startup_ratio_null": startup("bare again", "bare"),
        "startup_ratio_to_torchrun": startup("paceline", "torchrun"),
        "pairs": len(rounds),
    }
    met = {
        "throughput_ratio >= 0.98": figures["throughput_ratio"] >= 0.98,
        "startup_ratio <= 1.15": figures["startup_ratio"] <= 1.15,
    }
    if as_json:
        print(json.dumps({"figures": figures, "met": met}, indent=2))
        return
    table = Table(title=f"{WORKERS} workers, {len(rounds)} interleaved rounds, medians; measured")
    for column in ("way", "steps/s", "ratio to bare", "start-up s", "ratio to bare"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for way in rounds[0]:
        table.add_row(
            way,
            f"{statistics.median(each[way].steps_per_second for each in rounds):.2f}",
            f"{throughput(way):.3f}",
            f"{statistics.median(each[way].startup_seconds for each in rounds):.2f}",
            f"{startup(way, 'bare'):.3f}",
        )
    Console().print(table)
    for goal, reached in met.items():
        Console().print(f"{'met' if reached else 'NOT MET'}: {goal}")


if __name__ == "__main__":
    main()
