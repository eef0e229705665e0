"""Faults in real runs, by a seeded schedule, and a separate checker of what came of them.

Runs have four workers on this machine, each with one thread, in namespaces of their own, so no
rights are needed and nothing outside is touched; with --nodes they are on a testbed, under Slurm,
and links and nodes fail. With PACELINE_DEVICE_KIND=sim, where simulated/ is installed, they are on
simulated accelerators, which fail, too. A failure replays by its setting and its seed.
"""

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.chaos.faults.kinds import HERE, ON_DEVICES, TESTBED
from benchmarks.chaos.faults.schedule import printed
from benchmarks.chaos.page import page
from benchmarks.chaos.results import Results
from benchmarks.chaos.runs import run, scheduled
from benchmarks.chaos.settings import ON_SIM, SETTINGS
from benchmarks.chaos.tables import show
from benchmarks.chaos.world.isolation import enter
from benchmarks.common.output import argument_parser


def main() -> None:
    options = _options()
    if options.from_files:
        _tell(Results.merged([Results.read(path) for path in options.from_files]), options)
        return
    chosen = [
        replace(SETTINGS[name], lease_seconds=options.lease)
        for name in _some(options.settings, SETTINGS)
    ]
    here = (*HERE, *ON_DEVICES) if ON_SIM else HERE
    kinds = _some(options.kinds, TESTBED if options.nodes else here)
    if options.print:
        for setting in chosen:
            print(printed(scheduled(setting, kinds, options)), end="")
        return
    if not options.nodes:
        enter()
    results = Results(f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}")
    parent = Path(options.out or tempfile.mkdtemp(prefix="chaos-", dir="/var/tmp")).absolute()
    with _bar(options) as bar:
        task = bar.add_task("faults", total=options.faults * len(chosen))
        for setting in chosen:
            bar.update(task, description=setting.name)
            folder = parent / f"{setting.name}-{options.seed}"
            run(folder, setting, kinds, options, results, lambda: bar.advance(task))
    if options.json:
        results.write(options.json)
    _tell(results, options)
    if results.broken:
        settings = ",".join(dict.fromkeys(each.setting for each in results.broken))
        again = (
            f"--settings {settings} --seed {options.seed} --faults {options.faults}"
            f" --lease {options.lease:g}"
        )
        print(
            f"the folders of these runs are in {parent}; again:\n"
            f"  python -m benchmarks.chaos {again} --kinds {','.join(kinds)}",
            file=sys.stderr,
        )
        sys.exit(1)
    if not options.out:
        shutil.rmtree(parent, ignore_errors=True)


def _some(words: str, known: Collection[str]) -> list[str]:
    """Those that were named, or all."""
    named = list(known) if words == "all" else words.split(",")
    for name in named:
        if name not in known:
            sys.exit(f"{name} is none of {', '.join(known)}")
    return named


def _tell(results: Results, options: argparse.Namespace) -> None:
    if options.write:
        options.write.write_text(page(results))
    if not options.quiet:
        show(results)


def _bar(options: argparse.Namespace) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=options.quiet,
    )


def _options() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--settings", default="ddp", help=f"some of {','.join(SETTINGS)}, or all")
    parser.add_argument("--kinds", default="all", help=f"some of {','.join((*HERE, *ON_DEVICES))}")
    parser.add_argument("--nodes", type=int, help="on a testbed of so many nodes, with its faults")
    parser.add_argument("--faults", type=int, default=100, help="in each setting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--lease",
        type=float,
        default=1.5,
        metavar="SECONDS",
        help="how long a worker may be silent: longer where others use this machine, too",
    )
    parser.add_argument("--print", action="store_true", help="print the schedule and do no more")
    parser.add_argument("--out", help="keep the runs' folders here")
    parser.add_argument("--json", type=Path, help="write all that was found to this file")
    parser.add_argument(
        "--from",
        type=Path,
        nargs="+",
        dest="from_files",
        metavar="JSON",
        help="run nothing: show what is in such files, together",
    )
    parser.add_argument("--write", type=Path, help="write the page to this file")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
