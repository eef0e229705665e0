"""One job through faults under Paceline, torchrun and torchft: how soon it goes on, what is lost.

Four workers of one thread each, Gloo; their computing is emulated by sleeping, what they send is
real. In every round each way has each fault once, in a run of its own: `kill -9` of a worker, a
worker that hangs for ever (SIGSTOP), and the loss of a node (a network namespace whose cable is cut
before its processes are killed; the others hear nothing). Times are from the fault to the next step
that a survivor commits, by the clock that all processes share. Then workers are killed again and
again, and started again by whoever does that: torchrun and `paceline run` themselves, for torchft
this program.

A spare is a worker of Paceline that stands by on this machine; it is not tried with nodes. Node
loss needs root. torchft is `python -m venv DIR && DIR/bin/pip install torch==2.13.0 numpy
torchft==0.2.0`; without --torchft-python it is left out.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import Progress

from benchmarks.common.output import argument_parser
from benchmarks.recovery.launchers import WAYS, Settings
from benchmarks.recovery.results import READY, Results
from benchmarks.recovery.trials import KINDS, DidNotStart, fault, goodput

MODES = (*KINDS, "goodput")
WIDTH = 110
"""Of the table in a file, where no terminal says how much room there is."""


def main() -> None:
    options = _options()
    results = Results.read(options.show) if options.show else measure(options)
    results.show(Console(width=None if sys.stdout.isatty() else WIDTH))


def _options() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="faults of each kind on each way")
    parser.add_argument("--only", nargs="+", default=list(WAYS), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--faults", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--torchft-python", type=Path, help="the Python that has torchft")
    parser.add_argument("--step-milliseconds", type=float, default=20.0, help="emulated computing")
    parser.add_argument(
        "--peer-timeout",
        type=float,
        default=5.0,
        help="seconds after which torchrun's and torchft's collectives give up",
    )
    parser.add_argument("--limit", type=float, default=120.0, help="seconds to wait for a recovery")
    parser.add_argument("--kill-every", type=float, default=15.0, help="seconds, for goodput")
    parser.add_argument("--kills", type=int, default=12, help="in the run for goodput")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing, read this")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> Results:
    """All ways after one another in every round, then each with a row of kills."""
    results = Results(os.getloadavg()[0], options.step_milliseconds)
    settings = Settings(
        options.step_milliseconds / 1000, options.peer_timeout, options.torchft_python
    )
    ways = [way for way in WAYS if way in options.only and _is_here(way, settings, results)]
    kinds = [kind for kind in KINDS if kind in options.faults]
    if "node" in kinds and os.geteuid() != 0:
        kinds.remove("node")
        results.notes.append("node loss was left out: it needs root")
    rows = "goodput" in options.faults
    random = Random(options.seed)
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(ways) * (options.rounds * len(kinds) + rows))
        for number in range(options.rounds):
            for kind in kinds:
                hit = random.randrange(2**32)
                for way in ways:
                    if (kind, way) == ("node", READY):
                        progress.advance(bar)
                        continue
                    progress.update(bar, description=f"round {number + 1}: {way}, {kind}")
                    try:
                        found = fault(way, kind, settings, Random(hit), options.limit)
                        results.faults.append(found)
                    except DidNotStart as error:
                        results.notes.append(f"{way} did not start: {error}")
                    _keep(results, options)
                    progress.advance(bar)
        for way in ways if rows else ():
            progress.update(bar, description=f"{way}, a kill every {options.kill_every:g} s")
            try:
                results.goodputs.append(
                    goodput(
                        way, settings, Random(random.random()), options.kill_every, options.kills
                    )
                )
            except DidNotStart as error:
                results.notes.append(f"{way} did not start: {error}")
            _keep(results, options)
            progress.advance(bar)
    return results


def _keep(results: Results, options: argparse.Namespace) -> None:
    """Who cuts this off has what was measured until then."""
    if options.json:
        results.write(options.json)


def _is_here(way: str, settings: Settings, results: Results) -> bool:
    if way != "torchft":
        return True
    python = settings.torchft_python
    there = (
        python is not None
        and not subprocess.run(
            [python, "-c", "import torchft"], capture_output=True, check=False
        ).returncode
    )
    if not there:
        results.missing.append(way)
    return there


if __name__ == "__main__":
    main()
