"""How well a training scales on a testbed of eight nodes, beside what its devices and links allow.

Devices are emulated (they wait instead of computing), what they exchange is real, over links of
1gbit and 100mbit; Slurm is real. For each link: the testbed is probed, then `paceline study` is
asked for strong and for weak scaling, predicted beside measured; at the last link named with
--directions also for more nodes against more workers per node against both. A page of each study
is left in its folder.

What devices and links allow: forward, then backward, in which each layer's gradient is exchanged by
a ring of all nodes as soon as it is there (Patarasuk and Yuan 2009: 2 (n - 1) / n of its bytes over
each link); nothing else takes any time.
"""

import argparse
import json
import runpy
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common.output import argument_parser
from benchmarks.common.processes import paceline
from paceline.testbed.paced import PacedCost

TRAIN = Path(__file__).parents[2] / "examples" / "study" / "train.py"
_EXAMPLE = runpy.run_path(str(TRAIN))
BATCH: int = _EXAMPLE["BATCH"]
LAYER: PacedCost = _EXAMPLE["LAYER"]
LAYERS: int = _EXAMPLE["LAYERS"]
BOX = "scaling-bench"
NODES = (1, 2, 4, 8)
BUCKET_MEGABYTES = 1
BYTES_PER_SECOND = {"1gbit": 125e6, "100mbit": 12.5e6}
PAYLOAD = 0.955
"""What is left of a link beside the headers (docs/testbed.md, measured)."""
PUBLISHED = {2: 1.88, 4: 3.64, 8: 6.67}
"""Speed-ups of the founding study on 2, 4 and 8 nodes."""


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the studies")
    parser.add_argument("--links", nargs="+", default=["1gbit", "100mbit"])
    parser.add_argument("--kinds", nargs="*", default=["strong", "weak"])
    parser.add_argument("--directions", metavar="LINK", help="horizontal, vertical, hybrid, too")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for link in dict.fromkeys([*asked.links, *[asked.directions] * bool(asked.directions)]):
        paceline("testbed", "up", "--name", BOX, "--nodes", str(max(NODES)), "--link", link)
        try:
            cluster = asked.out / f"{link}.toml"
            paceline("probe", "--testbed", BOX, "--nodes", "2", "-o", str(cluster))
            for kind in asked.kinds if link in asked.links else []:
                found = _study(asked, link, f"{kind}-{link}", kind, NODES, (1,), cluster)
                _show(f"{kind} scaling, links of {link}", kind, link, found)
            if link == asked.directions:
                _show(
                    "more nodes, more workers a node, both",
                    "strong",
                    link,
                    _directions(asked, link, cluster),
                )
        finally:
            paceline("testbed", "down", "--name", BOX)


def _directions(asked: argparse.Namespace, link: str, cluster: Path) -> dict[str, Any]:
    """Points of one study, which several commands add to."""
    name = f"directions-{link}"
    for nodes, devices in [(NODES, (1,)), ((1,), NODES), ((2, 4), (2,)), ((2,), (4,))]:
        found = _study(asked, link, name, "strong", nodes, devices, cluster)
    return found


def _study(
    asked: argparse.Namespace,
    link: str,
    name: str,
    kind: str,
    nodes: tuple[int, ...],
    devices: tuple[int, ...],
    cluster: Path,
) -> dict[str, Any]:
    said = paceline(
        *("study", str(TRAIN), "--testbed", BOX, "--kind", kind, "--cluster", str(cluster)),
        *("--nodes", ",".join(map(str, nodes)), "--devices", ",".join(map(str, devices))),
        *("--steps", str(asked.steps), "--warm-up", "3", "--repeat", str(asked.repeat)),
        *("--bucket-megabytes", str(BUCKET_MEGABYTES), "--out", str(asked.out / name), "--json"),
    )
    found: dict[str, Any] = json.loads(said)
    return found


def _allowed_seconds(kind: str, link: str, workers: int) -> float:
    """Of a step, if nothing but the devices and the links takes time."""
    share = BATCH if kind == "weak" else BATCH / workers
    forward = LAYERS * LAYER.forward_seconds * share
    backward = LAYERS * LAYER.backward_seconds * share
    sent = 2 * (workers - 1) / workers * LAYERS * LAYER.parameter_bytes
    exchange = sent / (PAYLOAD * BYTES_PER_SECOND[link])
    # Either the device is the last to end, and then the gradient of one layer is left to exchange,
    # or the link is, which begins with the first layer's.
    return forward + max(backward + exchange / LAYERS, backward / LAYERS + exchange)


def _show(title: str, kind: str, link: str, found: dict[str, Any]) -> None:
    table = Table(title=title)
    for name in ("where", "ms/step", "speed-up", "allowed", "of it", "predicted", "published"):
        table.add_column(name, justify="left" if name == "where" else "right")
    base = _allowed_seconds(kind, link, 1)
    for each in found["points"]:
        point, speedup = each["point"], each["speedup"]["value"]
        workers = point["nodes"] * point["devices_per_node"]
        on_links = point["devices_per_node"] == 1
        grown = workers if kind == "weak" else 1
        allowed = grown * base / _allowed_seconds(kind, link, workers)
        said, rate = each["predicted_samples_per_second"], each["samples_per_second"]["value"]
        table.add_row(
            f"{point['nodes']} x {point['devices_per_node']}",
            f"{1e3 * sum(run['step_seconds'] for run in each['runs']) / len(each['runs']):.0f}",
            f"{speedup:.2f}",
            f"{allowed:.2f}" if on_links else "–",
            f"{speedup / allowed:.0%}" if on_links else "–",
            f"{said / rate - 1:+.0%}" if said else "–",
            f"{PUBLISHED[workers]:.2f}" if workers in PUBLISHED and kind == "strong" else "–",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
