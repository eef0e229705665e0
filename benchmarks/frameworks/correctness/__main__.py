"""Five of the examples in four frameworks on three workers: is the trained model the same?

Each job is compared with a plain loop in one process: the outputs of the trained model, relative to
how far the training moved them. Model and data are those of the examples, in the same order in all.
Accelerate and Lightning are installed into virtual environments under --envs, at the first time.
"""

import tempfile
from datetime import date
from pathlib import Path

import torch

from benchmarks.common.output import argument_parser, progress
from benchmarks.frameworks.__main__ import CACHE
from benchmarks.frameworks.correctness.results import Results
from benchmarks.frameworks.correctness.runs import (
    CASES,
    NULL,
    PEERS,
    PLAIN,
    SETTINGS,
    machine,
    run_forked,
    run_paceline,
)
from benchmarks.frameworks.environments import interpreter, version

HERE = Path(__file__).parent
FIGURES = HERE / "figures.json"
PAGE = HERE.parents[2] / "docs" / "frameworks.md"
PICTURE = PAGE.parent / "pictures" / "correctness.svg"
BEGIN, END = "<!-- correctness -->\n", "<!-- end of correctness -->"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--envs", type=Path, default=CACHE, help="where frameworks are installed")
    parser.add_argument("--runs", type=Path, help="keep the runs here, and skip those that are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing, read this")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name} and its picture")
    options = parser.parse_args()
    if options.show:
        results = Results.read(options.show)
    elif options.runs:
        results = measure(options.envs, options.runs.absolute())
    else:
        with tempfile.TemporaryDirectory(prefix="cr-") as folder:
            results = measure(options.envs, Path(folder))
    if options.json:
        results.write(options.json)
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{results.markdown()}\n\n{END}{after}")
        results.draw(PICTURE)
    print(results.markdown())


def measure(environments: Path, output: Path) -> Results:
    """Run all that has not run, and compare."""
    pythons = {way: interpreter(way.peer, environments) for way in PEERS if way.peer}
    versions = {way.name: version(way.peer, python) for way, python in pythons.items() if way.peer}
    run_forked(PLAIN, output)
    run_forked(NULL, output)
    for way, python in pythons.items():
        run_forked(way, output, python)
    for case in progress(CASES, "Paceline"):
        for setting in SETTINGS:
            run_paceline(case, setting, output)
    versions["torch"] = torch.__version__
    return Results.of(output, date.today().isoformat(), machine(), versions)


if __name__ == "__main__":
    main()
