"""The most memory of each worker under each layout: counted by the dry run, and measured.

    python benchmarks/memory.py [--json]

A GPT of 59 million parameters with AdamW in fp32, on this machine's CPU. Measured: the growth of
the resident memory over what the process had before the model was built, at its most in the steps
after the first two. Counted: the dry run's peak, for the worker that has the most.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

JOB = Path(__file__).parent / "memory_job" / "train.py"
GOAL = 0.15
LAYOUTS: dict[str, dict[str, int | str]] = {
    "1 worker": {},
    "2 replicas": {"replicas": 2},
    "2 shards": {"shards": 2},
    "4 shards": {"shards": 4},
    "2 slices": {"tensor": 2},
    "4 slices": {"tensor": 4},
    "2 stages": {"pipeline": 2, "micro-batch": 1},
    "4 stages": {"pipeline": 4, "micro-batch": 1},
    "2 stages x 2 slices": {"pipeline": 2, "tensor": 2, "micro-batch": 1},
    "2 shards x 2 slices": {"shards": 2, "tensor": 2},
    "recompute": {"recompute": "block"},
}

# The allocator gives memory back at once, so that what is resident is what is in use.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
}


def words(layout: dict[str, int | str]) -> list[str]:
    """A layout as options."""
    return [str(word) for name, value in layout.items() for word in (f"--{name}", value)]


def workers(layout: dict[str, int | str]) -> int:
    """How many workers a layout takes."""
    count = 1
    for name in ("replicas", "shards", "tensor", "pipeline"):
        count *= int(layout.get(name, 1))
    return count


def paceline(*given: str | Path, **environment: str) -> str:
    """What a command prints."""
    return subprocess.run(
        [sys.executable, "-m", "paceline", *map(str, given)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    ).stdout


def counted_bytes(layout: dict[str, int | str]) -> int:
    """The dry run's peak, of the worker that has the most."""
    given = ("--nodes", "1", "--devices", str(workers(layout)), *words(layout))
    picture: Any = json.loads(paceline("run", JOB, "--dry-run", "--json", *given))
    return max(int(rank["memory"]["peak"]) for rank in picture["ranks"])


def measured_bytes(layout: dict[str, int | str]) -> int:
    """The measured peak, of the worker that has the most."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "peaks")
        output.mkdir()
        where: list[str | Path] = ["--quiet", "--runs", Path(folder, "runs")]
        given = [f"{JOB}:measured", "-n", str(workers(layout)), *words(layout), *where]
        paceline("run", *given, MEMORY_OUTPUT=str(output), **ALLOCATOR)
        return max(int(path.read_text()) for path in output.iterdir())


def main() -> None:
    """Measure all layouts and show them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {
        name: (counted_bytes(layout), measured_bytes(layout))
        for name, layout in track(
            LAYOUTS.items(), "measuring", console=Console(stderr=True), disable=options.json
        )
    }
    met = all(abs(measured / counted - 1) <= GOAL for counted, measured in found.values())
    if options.json:
        print(json.dumps({"counted and measured bytes": found, "met": met}, indent=2))
        return
    table = Table(title="The most memory of a worker in a step")
    for column in ("layout", "counted MB", "measured MB", "measured / counted"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for name, (counted, measured) in found.items():
        table.add_row(
            name, f"{counted / 1e6:.0f}", f"{measured / 1e6:.0f}", f"{measured / counted:.2f}"
        )
    Console().print(table)
    Console().print(f"{'met' if met else 'NOT MET'}: within {GOAL:.0%} of what was counted")


if __name__ == "__main__":
    main()
