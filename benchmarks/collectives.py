"""What an all-reduce takes by a ring, a double binary tree and in three calls, as modelled.

    python benchmarks/collectives.py [--json]

Simulated: formulas of `paceline.cluster.collectives`, in latencies and bytes per second, with links
of H100 nodes from the catalogue and the planner's guesses; nothing is sent. The group has all
devices of its nodes. `ring`: one ring through all of them. `double tree`: a chain inside each node,
two trees between nodes, in as many pieces as are best. `hierarchical`: reduce-scatter inside nodes,
all-reduce across them, all-gather inside, in three calls.
"""

import argparse
import json
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from paceline.cluster.catalog import usual_cluster
from paceline.cluster.collectives import MODELS, Array, Group, double_tree, hierarchical
from paceline.plan.cost.coefficients import Numbers
from paceline.plan.cost.device_groups import group_of
from paceline.specs.measurements.cluster import Cluster

NODES = tuple(2**power for power in range(1, 11))
MEBIBYTES = (1 / 16, 25, 1024)
"""A few small layers, a bucket of gradients, a whole model."""


def ring(nbytes: Array, group: Group) -> Array:
    """A reduce-scatter and an all-gather around one ring, in one call."""
    both = MODELS["reduce-scatter"](nbytes, group) + MODELS["all-gather"](nbytes, group)
    return both - group.call


WAYS: dict[str, Callable[[Array, Group], Array]] = {
    "ring": ring,
    "double tree": double_tree.seconds,
    "hierarchical": hierarchical.seconds,
}


def predicted(cluster: Cluster) -> dict[float, dict[str, list[float]]]:
    """Seconds for each of `NODES`, by size and way."""
    members = cluster.devices_per_node * np.array(NODES, dtype=np.float64)
    group = group_of(cluster, Numbers.guessed(), members, 1.0)
    return {
        size: {
            name: [float(each) for each in way(np.array(size * 2**20), group)]
            for name, way in WAYS.items()
        }
        for size in MEBIBYTES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cluster = usual_cluster("h100-80gb", max(NODES))
    found = predicted(cluster)
    if options.json:
        _print_json(cluster, found)
    else:
        _print_tables(cluster, found)


def _print_json(cluster: Cluster, found: dict[float, dict[str, list[float]]]) -> None:
    rows = [
        {"mebibytes": size, "nodes": nodes, "way": way, "seconds": seconds}
        for size, ways in found.items()
        for way, line in ways.items()
        for nodes, seconds in zip(NODES, line, strict=True)
    ]
    print(json.dumps({"origin": "simulated", "links": _links(cluster), "rows": rows}, indent=2))


def _print_tables(cluster: Cluster, found: dict[float, dict[str, list[float]]]) -> None:
    console = Console()
    console.print(f"Nodes of {cluster.devices_per_node} devices, {_links(cluster)}; simulated")
    for size, ways in found.items():
        table = Table(title=f"All-reduce of {size:g} MiB, milliseconds")
        table.add_column("nodes", justify="right")
        for way in ways:
            table.add_column(way, justify="right")
        table.add_column("fastest")
        for row, nodes in enumerate(NODES):
            line = {way: seconds[row] for way, seconds in ways.items()}
            cells = (f"{1e3 * seconds:.3g}" for seconds in line.values())
            table.add_row(str(nodes), *cells, min(line, key=lambda way: line[way]))
        console.print(table)


def _links(cluster: Cluster) -> str:
    return f"{cluster.inside.name} inside, {cluster.between.name} between"


if __name__ == "__main__":
    main()
