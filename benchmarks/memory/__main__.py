"""Peak memory per worker and layout: the dry run's prediction against a measurement.

A GPT of 59 million parameters with AdamW in fp32, on this machine's CPU. Measured: the growth of a
worker's resident memory over what its process had before the model was built, at its peak in the
steps after the first two. Predicted: the dry run's peak. Both of the worker that needs most.
"""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.common.output import argument_parser, print_goals, progress, table
from benchmarks.common.processes import paceline

JOB = Path(__file__).parent / "train.py"
GOAL = 0.15
Layout = dict[str, int | str]
LAYOUTS: dict[str, Layout] = {
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

# The allocator returns memory at once, so that resident memory is memory in use.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
}


def options_of(layout: Layout) -> list[str]:
    """Return a layout as command-line options."""
    return [str(word) for name, value in layout.items() for word in (f"--{name}", value)]


def workers(layout: Layout) -> int:
    """Return the number of workers of a layout."""
    return math.prod(
        int(layout.get(name, 1)) for name in ("replicas", "shards", "tensor", "pipeline")
    )


def predicted_bytes(layout: Layout) -> int:
    """Return the dry run's peak of the worker that needs most."""
    where = ("--nodes", 1, "--devices", workers(layout))
    printed: Any = json.loads(
        paceline("run", JOB, "--dry-run", "--json", *where, *options_of(layout))
    )
    return max(int(rank["memory"]["peak"]) for rank in printed["ranks"])


def measured_bytes(layout: Layout) -> int:
    """Return the measured peak of the worker that needs most."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "peaks")
        output.mkdir()
        words = (f"{JOB}:measured", "-n", workers(layout), *options_of(layout))
        where = ("--quiet", "--runs", Path(folder, "runs"))
        paceline("run", *words, *where, variables=ALLOCATOR | {"MEMORY_OUTPUT": str(output)})
        return max(int(path.read_text()) for path in output.iterdir())


def main() -> None:
    """Measure all layouts and print them."""
    words = argument_parser(__doc__)
    words.add_argument("--layouts", default=",".join(LAYOUTS), help="some of: %(default)s")
    words.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = words.parse_args()
    names = options.layouts.split(",")
    if unknown := set(names) - LAYOUTS.keys():
        words.error(f"unknown layout: {', '.join(sorted(unknown))}")
    found = {
        name: (predicted_bytes(LAYOUTS[name]), measured_bytes(LAYOUTS[name]))
        for name in progress(names, "measuring", quiet=options.json)
    }
    met = all(abs(measured / predicted - 1) <= GOAL for predicted, measured in found.values())
    if options.json:
        print(json.dumps({"counted and measured bytes": found, "met": met}, indent=2))
        return
    shown = table(
        "Peak memory of a worker in a step",
        *("layout", "predicted MB", "measured MB", "measured / predicted"),
    )
    for name, (predicted, measured) in found.items():
        megabytes = (f"{each / 1e6:.0f}" for each in (predicted, measured))
        shown.add_row(name, *megabytes, f"{measured / predicted:.2f}")
    Console().print(shown)
    print_goals({f"within {GOAL:.0%} of the prediction": met})


if __name__ == "__main__":
    main()
