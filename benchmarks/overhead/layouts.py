"""Every layout against the same layout written by hand in PyTorch, Accelerate and Fabric.

Two workers on this machine's CPU; steps per second after the first ten steps, by the wall clock of
worker 0. Every round runs all ways, the bare script first and last: the others are divided by the
mean of the two, and the difference between the two is noise. Medians over the rounds. A framework
that cannot run a layout is left out of it, with its error. Accelerate and Fabric need
`pip install accelerate lightning-fabric`.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.common.output import argument_parser, print_goals, progress, table
from benchmarks.common.processes import Failed
from benchmarks.common.rounds import Rounds, in_turn
from benchmarks.common.runs import Measured
from benchmarks.overhead.launchers import WORKERS, bare, under_paceline

LAYOUTS = {"replicas": "DDP", "shards": "FSDP2", "pipeline": "1F1B"}
WAYS: dict[str, Callable[[Path, str], Measured]] = {
    "bare": bare,
    "paceline": under_paceline,
    "accelerate": partial(bare, script="with_accelerate.py"),
    "fabric": partial(bare, script="with_fabric.py"),
    "bare again": bare,
}
OTHERS = ("paceline", "accelerate", "fabric")
GOAL = 0.98


@dataclass
class Found:
    """The rounds of one layout."""

    speeds: Rounds = field(default_factory=Rounds)
    """Steps per second of each way."""
    cannot: dict[str, str] = field(default_factory=dict)
    """The ways that cannot run this layout, with their errors."""

    def measure(self, layout: str) -> None:
        """Run one more round."""
        found: dict[str, float] = {}
        ways = [way for way in WAYS if way not in self.cannot]
        for way in in_turn(ways, len(self.speeds.values)):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found[way] = WAYS[way](Path(folder), layout).steps_per_second
                except Failed as error:
                    self.cannot[way] = str(error)
        self.speeds.values.append(found)

    def ratio(self, way: str) -> float | None:
        """Its speed divided by that of the bare script; None where it cannot run the layout."""
        if {way, "bare"} & self.cannot.keys():
            return None
        return self.speeds.ratio(way, "bare", "bare again")

    def noise(self) -> float | None:
        """The speed of the bare script's second run divided by that of its first."""
        return None if "bare" in self.cannot else self.speeds.ratio("bare again", "bare")


def main() -> None:
    """Measure the layouts and print them."""
    words = argument_parser(__doc__)
    words.add_argument("--pairs", type=int, default=5, help="rounds (default: %(default)s)")
    words.add_argument("--layouts", default=",".join(LAYOUTS), help="some of: %(default)s")
    words.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = words.parse_args()
    found = {layout: Found() for layout in options.layouts.split(",")}
    if unknown := found.keys() - LAYOUTS.keys():
        words.error(f"unknown layout: {', '.join(sorted(unknown))}")
    for _ in progress(range(options.pairs), "measuring", quiet=options.json):
        for layout, its in found.items():
            its.measure(layout)
    met = {
        f"{layout}_ratio >= {GOAL}": (its.ratio("paceline") or 0.0) >= GOAL
        for layout, its in found.items()
    }
    if options.json:
        _print_json(found, met, options.pairs)
    else:
        _print_table(found, options.pairs)
        print_goals(met)


def _print_json(found: dict[str, Found], met: dict[str, bool], pairs: int) -> None:
    figures: dict[str, float | None] = {"pairs": pairs}
    for layout, its in found.items():
        figures[f"{layout}_ratio"] = its.ratio("paceline")
        figures[f"{layout}_ratio_null"] = its.noise()
        for framework in ("accelerate", "fabric"):
            figures[f"{layout}_ratio_{framework}"] = its.ratio(framework)
    printed = {
        "figures": figures,
        "met": met,
        "cannot": {layout: its.cannot for layout, its in found.items()},
        "steps_per_second": {layout: its.speeds.values for layout, its in found.items()},
    }
    print(json.dumps(printed, indent=2))


def _print_table(found: dict[str, Found], pairs: int) -> None:
    console = Console()
    shown = table(
        f"{WORKERS} workers, {pairs} interleaved rounds, medians; measured",
        *("layout", "bare steps/s", *(f"{way} / bare" for way in OTHERS)),
        "bare again / bare (noise)",
    )
    for layout, its in found.items():
        ratios = [*(its.ratio(way) for way in OTHERS), its.noise()]
        shown.add_row(
            f"{layout} ({LAYOUTS[layout]})",
            "-" if "bare" in its.cannot else f"{its.speeds.median('bare'):.2f}",
            *("-" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
        )
    console.print(shown)
    for layout, its in found.items():
        for way, reason in its.cannot.items():
            console.print(f"{way} cannot run {layout}: {reason}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
