"""Each layout against the same layout written by hand in bare PyTorch, and against peers.

    python benchmarks/engine.py [--pairs 5] [--layouts replicas,shards,pipeline] [--json]

Two workers on this machine's CPU; steps per second after the first ten steps, by the wall clock of
worker 0; all ways one after the other in every round, and medians of the ratios within the rounds.
Every bare script runs twice in a round, first and last: the others are compared with the mean of
both, so that a machine that grows faster or slower favours nobody, and what differs between the two
is noise. A way that cannot
do a layout is left out of it, with what it said. The peers are `pip install accelerate
lightning-fabric`.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from overhead import Cannot, Measured, bare, under_paceline
from rich.console import Console
from rich.progress import track
from rich.table import Table

LAYOUTS = {"replicas": "DDP", "shards": "FSDP2", "pipeline": "1F1B"}
WAYS: dict[str, Callable[[Path, str], Measured]] = {
    "bare": bare,
    "paceline": under_paceline,
    "accelerate": partial(bare, script="accelerate_job.py"),
    "fabric": partial(bare, script="fabric_job.py"),
    "bare again": bare,
}
GOAL = 0.98


@dataclass
class Found:
    """What the rounds of one layout gave."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    """Steps per second of each way."""
    cannot: dict[str, str] = field(default_factory=dict)
    """The ways that cannot do this layout, and what they said."""

    def measure(self, layout: str) -> None:
        """One more round, every other one backwards."""
        order = [way for way in WAYS if way not in self.cannot]
        found: dict[str, float] = {}
        for way in reversed(order) if len(self.rounds) % 2 else order:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found[way] = WAYS[way](Path(folder), layout).steps_per_second
                except Cannot as error:
                    self.cannot[way] = str(error)
        self.rounds.append(found)

    def ratio(self, way: str) -> float | None:
        """Its speed by the mean of both runs of the bare script; None where it cannot do it."""
        if {way, "bare"} & self.cannot.keys():
            return None
        return statistics.median(
            each[way] / statistics.mean((each["bare"], each["bare again"])) for each in self.rounds
        )

    def noise(self) -> float | None:
        """The speed of the bare script's second run by that of its first."""
        if "bare" in self.cannot:
            return None
        return statistics.median(each["bare again"] / each["bare"] for each in self.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5, help="rounds")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="some of: %(default)s")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {layout: Found() for layout in options.layouts.split(",")}
    if unknown := found.keys() - LAYOUTS.keys():
        parser.error(f"no such layout: {', '.join(sorted(unknown))}")
    console = Console(stderr=True)
    for _ in track(range(options.pairs), "measuring", console=console, disable=options.json):
        for layout, its in found.items():
            its.measure(layout)
    met = {
        f"{layout}_ratio >= {GOAL}": (its.ratio("paceline") or 0.0) >= GOAL
        for layout, its in found.items()
    }
    if options.json:
        _print_json(found, met, options.pairs)
    else:
        _print_table(found, met, options.pairs)


def _print_json(found: dict[str, Found], met: dict[str, bool], pairs: int) -> None:
    figures: dict[str, float | None] = {"pairs": pairs}
    for layout, its in found.items():
        figures[f"{layout}_ratio"] = its.ratio("paceline")
        figures[f"{layout}_ratio_null"] = its.noise()
        for peer in ("accelerate", "fabric"):
            figures[f"{layout}_ratio_{peer}"] = its.ratio(peer)
    cannot = {layout: its.cannot for layout, its in found.items()}
    rounds = {layout: its.rounds for layout, its in found.items()}
    said = {"figures": figures, "met": met, "cannot": cannot, "steps_per_second": rounds}
    print(json.dumps(said, indent=2))


def _print_table(found: dict[str, Found], met: dict[str, bool], pairs: int) -> None:
    console = Console()
    table = Table(title=f"2 workers, {pairs} interleaved rounds, medians; measured")
    table.add_column("layout")
    table.add_column("bare steps/s", justify="right")
    others = [way for way in WAYS if not way.startswith("bare")]
    for way in others:
        table.add_column(f"{way} / bare", justify="right")
    table.add_column("bare again / bare (noise)", justify="right")
    for layout, its in found.items():
        speeds = [each["bare"] for each in its.rounds if "bare" in each]
        ratios = [*(its.ratio(way) for way in others), its.noise()]
        table.add_row(
            f"{layout} ({LAYOUTS[layout]})",
            f"{statistics.median(speeds):.2f}" if speeds else "-",
            *("-" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
        )
    console.print(table)
    for layout, its in found.items():
        for way, reason in its.cannot.items():
            console.print(f"{way} cannot do {layout}: {reason}", markup=False, highlight=False)
    for goal, reached in met.items():
        console.print(f"{'met' if reached else 'NOT MET'}: {goal}")


if __name__ == "__main__":
    main()
