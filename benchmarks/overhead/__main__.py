"""Throughput and start-up of Paceline against a bare DDP script, interleaved.

Two workers on this machine's CPU train the same GPT. Throughput: steps per second after the first
ten steps, by the wall clock of worker 0. Start-up: from the command to the end of the first step,
against the bare script's two processes started at once and against torchrun. The bare script runs
twice in every round; the difference between the two is noise.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks.common.output import argument_parser, print_goals, progress, table
from benchmarks.common.rounds import Rounds, in_turn
from benchmarks.common.runs import Measured
from benchmarks.overhead.launchers import WORKERS, bare, under_paceline, under_torchrun

WAYS: dict[str, Callable[[Path], Measured]] = {
    "bare": bare,
    "paceline": under_paceline,
    "bare again": bare,
    "torchrun": under_torchrun,
}


def main() -> None:
    """Measure all rounds and print them."""
    words = argument_parser(__doc__)
    words.add_argument("--pairs", type=int, default=7, help="rounds (default: %(default)s)")
    words.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = words.parse_args()
    speeds, startups = Rounds(), Rounds()
    for number in progress(range(options.pairs), "measuring", quiet=options.json):
        measured: dict[str, Measured] = {}
        for way in in_turn(list(WAYS), number):
            with tempfile.TemporaryDirectory() as folder:
                measured[way] = WAYS[way](Path(folder))
        speeds.values.append({way: each.steps_per_second for way, each in measured.items()})
        startups.values.append({way: each.startup_seconds for way, each in measured.items()})
    _print(speeds, startups, as_json=options.json)


def _print(speeds: Rounds, startups: Rounds, *, as_json: bool) -> None:
    figures = {
        "throughput_ratio": speeds.ratio("paceline", "bare"),
        "throughput_ratio_null": speeds.ratio("bare again", "bare"),
        "startup_ratio": startups.ratio("paceline", "bare"),
        "startup_ratio_null": startups.ratio("bare again", "bare"),
        "startup_ratio_to_torchrun": startups.ratio("paceline", "torchrun"),
        "pairs": len(speeds.values),
    }
    met = {
        "throughput_ratio >= 0.98": figures["throughput_ratio"] >= 0.98,
        "startup_ratio <= 1.15": figures["startup_ratio"] <= 1.15,
    }
    if as_json:
        print(json.dumps({"figures": figures, "met": met}, indent=2))
        return
    shown = table(
        f"{WORKERS} workers, {len(speeds.values)} interleaved rounds, medians; measured",
        *("way", "steps/s", "ratio to bare", "start-up s", "ratio to bare"),
    )
    for way in WAYS:
        shown.add_row(
            way,
            f"{speeds.median(way):.2f}",
            f"{speeds.ratio(way, 'bare'):.3f}",
            f"{startups.median(way):.2f}",
            f"{startups.ratio(way, 'bare'):.3f}",
        )
    Console().print(shown)
    print_goals(met)


if __name__ == "__main__":
    main()
