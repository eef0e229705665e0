"""Each layout against the same layout written by hand in bare PyTorch, interleaved.

    python benchmarks/engine.py [--pairs 5] [--json]

Two workers on this machine's CPU; steps per second after the first ten steps, by the wall clock of
worker 0; medians of the ratios within each round. Every bare script runs twice in a round: what
differs between those two is noise.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from overhead import bare, under_paceline
from rich.console import Console
from rich.progress import track
from rich.table import Table

LAYOUTS = {"replicas": "DDP", "shards": "FSDP2"}
GOAL = 0.98

Round = dict[str, float]


def measured_round(layout: str, *, backwards: bool) -> Round:
    ways = {"bare": bare, "paceline": under_paceline, "bare again": bare}
    found: Round = {}
    for way in reversed(ways) if backwards else ways:
        with tempfile.TemporaryDirectory() as folder:
            found[way] = ways[way](Path(folder), layout).steps_per_second
    return found


def ratio(rounds: list[Round], way: str) -> float:
    return statistics.median(each[way] / each["bare"] for each in rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds: dict[str, list[Round]] = {layout: [] for layout in LAYOUTS}
    console = Console(stderr=True)
    for number in track(range(options.pairs), "measuring", console=console, disable=options.json):
        for layout in LAYOUTS:
            rounds[layout].append(measured_round(layout, backwards=number % 2 == 1))
    figures: dict[str, float] = {"pairs": options.pairs}
    for layout, found in rounds.items():
        figures[f"{layout}_ratio"] = ratio(found, "paceline")
        figures[f"{layout}_ratio_null"] = ratio(found, "bare again")
    met = {f"{layout}_ratio >= {GOAL}": figures[f"{layout}_ratio"] >= GOAL for layout in LAYOUTS}
    if options.json:
        print(json.dumps({"figures": figures, "met": met}, indent=2))
        return
    table = Table(title=f"2 workers, {options.pairs} interleaved rounds, medians; measured")
    for column in ("layout", "bare steps/s", "paceline / bare", "bare again / bare (noise)"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for layout, found in rounds.items():
        table.add_row(
            f"{layout} ({LAYOUTS[layout]})",
            f"{statistics.median(each['bare'] for each in found):.2f}",
            f"{figures[f'{layout}_ratio']:.3f}",
            f"{figures[f'{layout}_ratio_null']:.3f}",
        )
    Console().print(table)
    for goal, reached in met.items():
        Console().print(f"{'met' if reached else 'NOT MET'}: {goal}")


if __name__ == "__main__":
    main()
