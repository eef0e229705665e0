"""What collectives cost, against their formulas and their limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.collectives import COLLECTIVES, Group

operations = st.sampled_from(sorted(COLLECTIVES))
sizes = st.floats(1, 1e12)


def group(members: int, per_node: int, inside: float = 200e9, between: float = 25e9) -> Group:
    return Group(
        members=np.array(float(members)),
        per_node=np.array(float(per_node)),
        inside_latency=np.array(3e-6),
        inside_rate=np.array(inside),
        between_latency=np.array(8e-6),
        between_rate=np.array(between),
        call=np.array(2e-5),
    )


def seconds(operation: str, nbytes: float, where: Group) -> float:
    return float(COLLECTIVES[operation](np.array(nbytes), where))


@given(operation=operations, nbytes=sizes)
def test_nothing_alone(operation: str, nbytes: float) -> None:
    assert seconds(operation, nbytes, group(1, 1)) == 0


@given(
    operation=operations,
    nbytes=sizes,
    nodes=st.integers(1, 64),
    per_node=st.integers(1, 8),
    faster=st.floats(1, 100),
)
def test_never_slower_on_faster_links(
    operation: str, nbytes: float, nodes: int, per_node: int, faster: float
) -> None:
    members = nodes * per_node
    usual = seconds(operation, nbytes, group(members, per_node))
    for link in ({"inside": 200e9 * faster}, {"between": 25e9 * faster}):
        assert seconds(operation, nbytes, group(members, per_node, **link)) <= usual * (1 + 1e-9)


@given(operation=operations, nbytes=sizes, per_node=st.integers(1, 8), nodes=st.integers(1, 64))
def test_more_bytes_take_longer(operation: str, nbytes: float, per_node: int, nodes: int) -> None:
    where = group(nodes * per_node, per_node)
    assert seconds(operation, nbytes, where) <= seconds(operation, 2 * nbytes, where)


def test_large_messages_in_a_node_take_a_ring() -> None:
    """2(g-1)·alpha + 2(g-1)/g·n/beta."""
    expected = 2 * 7 * 3e-6 + 2 * 7 / 8 * 1e9 / 200e9 + 2e-5
    assert seconds("all-reduce", 1e9, group(8, 8)) == pytest.approx(expected, rel=1e-3)


def test_gathering_and_scattering_are_half_of_it() -> None:
    half = 7 / 8 * 1e12 / 200e9
    assert seconds("all-gather", 1e12, group(8, 8)) == pytest.approx(half, rel=1e-3)
    assert seconds("reduce-scatter", 1e12, group(8, 8)) == pytest.approx(half, rel=1e-3)


def test_a_group_has_the_interfaces_of_its_members_in_a_node() -> None:
    """The rule that mattered most: 16 members on two nodes have eight interfaces, not one."""
    spread = seconds("all-gather", 1e12, group(16, 1))
    packed = seconds("all-gather", 1e12, group(16, 8, inside=1e15))
    assert spread / packed == pytest.approx(8, rel=1e-2)


def test_small_messages_over_many_nodes_take_a_tree() -> None:
    """2·log2(nodes) hops instead of 2(g-1)."""
    hops = 2 * 10 * 8e-6 + 2e-5
    assert seconds("all-reduce", 8.0, group(1024, 1)) == pytest.approx(hops, rel=1e-3)


def test_a_send_leaves_the_node_only_if_it_must() -> None:
    assert seconds("send", 1e9, group(4, 4)) == pytest.approx(1e9 / 200e9, rel=1e-2)
    assert seconds("send", 1e9, group(4, 1)) == pytest.approx(1e9 / 25e9, rel=1e-2)
