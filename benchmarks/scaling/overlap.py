"""How much of communication is left when gradients are sent during backward?

Devices are emulated (they wait instead of computing); four nodes of a testbed, links, TCP and Slurm
are real. Three step times: one node, which sends nothing; four nodes with small buckets, which are
sent while earlier layers are computed; four nodes with one bucket for all gradients but the first,
which is sent after the backward. What is left is the added time of small buckets, divided by that
of one bucket. Fixed before the first run.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.common.output import argument_parser, table
from benchmarks.common.processes import paceline

PACED = Path(__file__).with_name("paced_train.py")
BOX, NODES = "overlap-bench", 4
BATCH, LAYERS = 8, 16
FORWARD, BACKWARD, LAYER_BYTES = 0.00125, 0.0025, 1_500_000
"""Seconds of a layer per sample: 160 ms forward, 320 ms backward in all; 24 MB of gradients."""
BUCKETS = {"overlapped": 2, "not overlapped": 100}
"""Megabytes."""
PAPERS = "60 to 80 %"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--links", nargs="+", default=["1gbit", "500mbit"])
    parser.add_argument("--repeat", type=int, default=2)
    asked = parser.parse_args()
    columns = ("one node, ms", *(f"{each}, ms" for each in BUCKETS), "left", "papers")
    shown = table("communication that is left", "link", *columns)
    for link in asked.links:
        alone, overlapped, bare = _step_seconds(asked, link)
        left = (overlapped - alone) / (bare - alone)
        cells = (f"{1e3 * each:.0f}" for each in (alone, overlapped, bare))
        shown.add_row(link, *cells, f"{left:.0%}", PAPERS)
    Console().print(shown)


def _step_seconds(asked: argparse.Namespace, link: str) -> tuple[float, ...]:
    """Return the seconds of a step on one node, and on all with each size of buckets."""
    with tempfile.TemporaryDirectory() as name:
        costs, out = Path(name) / "costs.json", Path(name) / "study"
        layers = [(FORWARD, BACKWARD, LAYER_BYTES)] * LAYERS
        costs.write_text(json.dumps({"batch": BATCH, "layers": layers}))
        paceline("testbed", "up", "--name", BOX, "--nodes", NODES, "--link", link)
        try:
            said = paceline(
                *("study", PACED, "--testbed", BOX, "--nodes", f"1,{NODES}", "--kind", "weak"),
                *("--vary", f"bucket_megabytes={','.join(map(str, BUCKETS.values()))}"),
                *("--steps", 20, "--warm-up", 5, "--repeat", asked.repeat, "--out", out),
                *("--json", "--", costs),
            )
        finally:
            paceline("testbed", "down", "--name", BOX)
    points = json.loads(said)["points"]
    alone = [_mean(each) for each in points if each["point"]["nodes"] == 1]
    all_nodes = {
        each["point"]["varied"]["bucket_megabytes"]: _mean(each)
        for each in points
        if each["point"]["nodes"] == NODES
    }
    return statistics.mean(alone), *(all_nodes[str(size)] for size in BUCKETS.values())


def _mean(point: dict[str, Any]) -> float:
    if point["failures"]:
        raise SystemExit("\n".join(point["failures"]))
    seconds: list[float] = [run["step_seconds"] for run in point["runs"]]
    return statistics.mean(seconds)


if __name__ == "__main__":
    main()
