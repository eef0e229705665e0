"""One job under bare DDP, Paceline and its peers: speed, start-up, memory, lines, loss.

Two workers of one thread each on this machine's CPU, Gloo on the loopback. Every framework is
installed into a virtual environment of its own under --envs, at the first time; one that does not
install or run is skipped, and the table says why. Between any two frameworks DDP runs again: a
speed is compared with the mean of the runs of DDP just before and after it, and DDP with its own
run before, which shows the noise. The exit code is 1 when a framework ends at another loss.
"""

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common.output import argument_parser
from benchmarks.common.processes import Failed
from benchmarks.frameworks.environments import CannotInstall, interpreter, version
from benchmarks.frameworks.results import COLUMNS, TOLERANCE, Results, Run
from benchmarks.frameworks.ways import BASES, WAYS, Way, run_once

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end -->"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "paceline-frameworks"
FEWEST_STEPS = 12
console = Console(stderr=True)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60, help="in every run, ten to warm up")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"some of: {', '.join(WAYS)}")
    parser.add_argument("--envs", type=Path, default=CACHE, help="where frameworks are installed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing, read this")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args()
    if options.only and (unknown := set(options.only) - WAYS.keys()):
        parser.error(f"no such framework: {', '.join(sorted(unknown))}")
    if options.steps < FEWEST_STEPS:
        parser.error(f"--steps: at least {FEWEST_STEPS}")
    if options.show:
        results = Results.read(options.show)
    else:
        results = measure(options.only or list(WAYS), options.envs, options.rounds, options.steps)
    if options.json:
        results.write(options.json)
    if options.write:
        write(results)
    if options.markdown:
        print(results.markdown())
    else:
        show(results)
    if different := results.disagreeing():
        sys.exit(f"another loss than DDP's by more than {TOLERANCE}: {', '.join(different)}")


def measure(names: list[str], environments: Path, rounds: int, steps: int) -> Results:
    """All rounds, after everything is installed."""
    results = Results(machine(), steps, os.getloadavg()[0])
    wanted = [WAYS[name] for name in WAYS if name in names or name in needed(names)]
    pythons = dict(installed(wanted, environments, results))
    results.load_before = os.getloadavg()[0]
    for number in range(rounds):
        for base in BASES:
            ways = [way for way in wanted if way.base == base and way.name in pythons]
            for way in in_turns(ways, backwards=number % 2 == 1):
                if way.name in results.skipped:
                    continue
                console.print(f"round {number + 1} of {rounds}: {way.name}")
                try:
                    measured = run_once(way, pythons[way.name], steps)
                except Failed as error:
                    if way.name in BASES:
                        sys.exit(f"{way.name}, which the others are compared with: {error}")
                    results.skipped[way.name] = str(error)
                else:
                    results.runs.append(Run(number, way.name, measured))
    return results


def needed(names: list[str]) -> set[str]:
    """What the named ways are compared with."""
    return {WAYS[name].base for name in names}


def in_turns(ways: list[Way], *, backwards: bool) -> Iterator[Way]:
    """DDP first, last and between any two others."""
    bases = [way for way in ways if way.name in BASES]
    others = [way for way in ways if way.name not in BASES]
    for way in reversed(others) if backwards else others:
        yield from bases
        yield way
    yield from bases


def installed(ways: list[Way], environments: Path, results: Results) -> Iterator[tuple[str, Path]]:
    """The Python of each way that works; the first start, which builds and caches, is not timed."""
    for way in ways:
        try:
            if way.peer is None:
                python = Path(sys.executable)
                package = "paceline" if way.name == "Paceline" else "torch"
            else:
                with console.status(f"{way.name}: installing it, unless that was done before"):
                    python = interpreter(way.peer, environments)
                package = way.peer
                started = environments / way.peer / f"started-{way.name.replace(' ', '-')}"
                if not started.exists():
                    run_once(way, python, FEWEST_STEPS)
                    started.touch()
            results.versions[way.name] = version(package, python)
            yield way.name, python
        except (CannotInstall, Failed) as error:
            results.skipped[way.name] = str(error)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if "model name" in line), "CPU")
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}"


def write(results: Results) -> None:
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE.name} has no place for the table")
    PAGE.write_text(f"{before}{BEGIN}\n{results.markdown()}\n\n{END}{after}")


def show(results: Results) -> None:
    table = Table(title="One job, two workers", caption=results.caption())
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
    for row in results.rows():
        table.add_row(*row)
    Console().print(table)
    for way, reason in results.skipped.items():
        Console().print(f"{way} was skipped: {reason}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
