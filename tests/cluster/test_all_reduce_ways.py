"""Ways to all-reduce, each by its formula, and which of them is faster where."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.catalog import usual_cluster
from paceline.cluster.collectives import MODELS, Group, double_tree, hierarchical
from paceline.plan.cost.coefficients import Numbers
from paceline.plan.cost.device_groups import group_of
from paceline.specs.measurements.cluster import CollectiveCost

WAYS = {"double tree": double_tree.seconds, "hierarchical": hierarchical.seconds}
SHORT, LONG = 3e-6, 8e-6
"""Latencies of a hop, in seconds."""
ways = st.sampled_from(sorted(WAYS))
sizes = st.floats(1, 1e12)
several = st.integers(2, 512)
few = st.integers(2, 8)


def group(nodes: int, per_node: int, inside: float = 200e9, between: float = 25e9) -> Group:
    return Group(
        members=np.array(float(nodes * per_node)),
        per_node=np.array(float(per_node)),
        inside_latency=np.array(SHORT),
        inside_rate=np.array(inside),
        between_latency=np.array(LONG),
        between_rate=np.array(between),
        call=np.array(0.0),
    )


def seconds(way: str, nbytes: float, where: Group) -> float:
    return float(WAYS[way](np.array(nbytes), where))


def ring(nbytes: float, where: Group) -> float:
    """Over all members, nodes or not: a reduce-scatter, then an all-gather."""
    halves = (MODELS[half](np.array(nbytes), where) for half in ("reduce-scatter", "all-gather"))
    return float(sum(halves))


@given(way=ways, nbytes=sizes, nodes=st.integers(1, 64), per_node=st.integers(1, 8))
def test_more_bytes_take_longer(way: str, nbytes: float, nodes: int, per_node: int) -> None:
    where = group(nodes, per_node)
    found = [seconds(way, times * nbytes, where) for times in (1, 1.01, 2)]
    if nodes * per_node == 1:
        assert found == [0, 0, 0]
    else:
        assert found[0] < found[1] < found[2]


@given(way=ways, nbytes=sizes, nodes=several, per_node=few, faster=st.floats(1, 100))
def test_never_slower_on_faster_links(
    way: str, nbytes: float, nodes: int, per_node: int, faster: float
) -> None:
    usual = seconds(way, nbytes, group(nodes, per_node)) * (1 + 1e-9)
    assert seconds(way, nbytes, group(nodes, per_node, inside=200e9 * faster)) <= usual
    assert seconds(way, nbytes, group(nodes, per_node, between=25e9 * faster)) <= usual


@given(nbytes=sizes, nodes=several, per_node=few)
def test_hierarchical_beats_the_ring_where_links_inside_are_much_faster(
    nbytes: float, nodes: int, per_node: int
) -> None:
    where = group(nodes, per_node, inside=1e18)
    assert seconds("hierarchical", nbytes, where) <= ring(nbytes, where) * (1 + 1e-9)


@given(nodes=several, per_node=few)
def test_hierarchical_counts_latencies_by_nodes(nodes: int, per_node: int) -> None:
    """And across nodes, libraries take a tree for what is small."""
    expected = 2 * (per_node - 1) * SHORT + 2 * math.ceil(math.log2(nodes)) * LONG
    assert seconds("hierarchical", 1.0, group(nodes, per_node)) == pytest.approx(expected, rel=1e-3)


def test_hierarchical_takes_its_parts_one_after_the_other() -> None:
    """So that a ring, which keeps all links busy, is faster with large messages."""
    where = group(64, 8, inside=200e9, between=25e9)
    inside, across = 2 * 7 / 8 * 1e12 / 200e9, 2 * 63 / 64 * 1e12 / 8 / 25e9
    assert seconds("hierarchical", 1e12, where) == pytest.approx(inside + across, rel=1e-3)
    assert ring(1e12, where) == pytest.approx(2 * 511 / 512 * 1e12 / 200e9, rel=2e-3)


def test_hierarchical_follows_what_was_measured_of_its_parts() -> None:
    def measured(operation: str, members: int, per_node: int, latency: float) -> CollectiveCost:
        return CollectiveCost.model_validate(
            {
                "operation": operation,
                "members": members,
                "members_per_node": per_node,
                "latency_seconds": latency,
                "bytes_per_second": 1e9,
                "free_bytes": 0.0,
            }
        )

    lines = (
        measured("reduce-scatter", 8, 8, 0.1),
        measured("all-reduce", 4, 1, 0.2),
        measured("all-gather", 8, 8, 0.4),
    )
    cluster = usual_cluster("h100-80gb", 4).model_copy(update={"collectives": lines})
    where = group_of(cluster, Numbers.guessed(), np.array([32.0]), 1.0)
    expected = 0.1 + 0.2 + 0.4 + (8 + 8 / 8 + 8)
    assert hierarchical.seconds(np.array([8e9]), where) == pytest.approx(expected)


@given(nbytes=st.floats(1, 1e4), nodes=st.integers(8, 512))
def test_a_tree_beats_the_ring_with_small_messages_at_many_workers(
    nbytes: float, nodes: int
) -> None:
    assert seconds("double tree", nbytes, group(nodes, 1)) < ring(nbytes, group(nodes, 1))


@given(nodes=several)
def test_a_tree_and_a_ring_pass_the_same_bytes(nodes: int) -> None:
    huge, where = 1e18, group(nodes, 1)
    ratio = seconds("double tree", huge, where) / ring(huge, where)
    # A ring sends n-1 of n parts; in a tree of three or more, some send two whole halves each way.
    assert ratio == pytest.approx(1 if nodes == 2 else nodes / (nodes - 1), rel=1e-3)


@given(nodes=st.integers(3, 512), nbytes=sizes)
def test_a_tree_sends_as_many_pieces_as_are_best(nodes: int, nbytes: float) -> None:
    """Of k pieces, each goes h hops up and h down, one behind the other."""
    hops, alone = math.ceil(math.log2(nodes)), nbytes / 25e9
    best = round(math.sqrt((hops - 1) * alone / LONG))
    least = min(
        2 * (hops + pieces - 1) * (LONG + alone / pieces)
        for pieces in range(max(1, best - 2), best + 3)
    )
    found = seconds("double tree", nbytes, group(nodes, 1))
    assert least / 1.1 <= found <= least * (1 + 1e-9)


def test_in_one_piece_it_is_the_tree_of_the_study() -> None:
    """2·log2(n) rounds, in each of which half of the values comes from each of two children."""
    nbytes = 1e3
    rounds = 2 * math.log2(64)
    expected = rounds * (LONG + nbytes / 25e9)
    assert seconds("double tree", nbytes, group(64, 1)) == pytest.approx(expected)
