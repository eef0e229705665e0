"""Nodes and links that are slower than their peers."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TypeVar

from paceline.specs.measurements.probe import PairRate, Probed

_Key = TypeVar("_Key")

SLOW = 0.8
"""Fraction of the peers' median below which a figure is slow."""
FEWEST_PEERS = 3
"""Of two values that differ, neither is the outlier."""


def remarks(probed: Probed) -> tuple[str, ...]:
    """Return a sentence for each slow node and link."""
    names = [each.node for each in probed.workers[:: probed.devices_per_node]]
    slow_devices = _slow(_best_flops(probed))
    links = _links(probed.pairs)
    slow_links = _slow(links)
    found = [f"{name}: matrix products at {by:.2f} of the median" for name, by in slow_devices]
    found += [f"{names[node]}: link at {by:.2f} of the median" for node, by in slow_links]
    found += _slow_between(probed.pairs, names, {node for node, _ in slow_links})
    return tuple(found)


def _best_flops(probed: Probed) -> dict[str, float]:
    """Return the rate of the slowest device on each node."""
    found: dict[str, float] = {}
    for each in probed.workers:
        found[each.node] = min(found.get(each.node, each.best_flops), each.best_flops)
    return found


def _links(pairs: Sequence[PairRate]) -> dict[int, float]:
    """Return each node's best rate with any partner, so that a slow partner does not count."""
    found: dict[int, float] = {}
    for each in pairs:
        for node in each.nodes:
            found[node] = max(found.get(node, 0.0), each.bytes_per_second)
    return found


def _slow_between(
    pairs: Sequence[PairRate], names: Sequence[str], slow_nodes: set[int]
) -> list[str]:
    """Describe pairs of nodes that are slow together although each is fast with others."""
    whole = {each.nodes: each.bytes_per_second for each in pairs if not slow_nodes & {*each.nodes}}
    return [
        f"{names[one]} to {names[other]}: link at {by:.2f} of the median"
        for (one, other), by in _slow(whole)
    ]


def _slow(figures: Mapping[_Key, float]) -> list[tuple[_Key, float]]:
    """Return the slow keys with their fraction of the median."""
    if len(figures) < FEWEST_PEERS:
        return []
    usual = median(figures.values())
    return [(key, each / usual) for key, each in figures.items() if each < SLOW * usual]
