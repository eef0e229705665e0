"""Who communicates with whom in a probe, how much, and how long it may take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.probe.cases import (
    CALL_SECONDS,
    FIRST_BYTES,
    GROWTH,
    LEAST_GROWTH,
    MOST_ROUNDS,
    Grouping,
    groupings,
    in_parts,
    next_bytes,
    partners,
    repeats,
)

pytestmark = pytest.mark.alone

clusters = st.tuples(st.integers(1, 40), st.integers(1, 9))


@given(clusters)
def test_groups_are_disjoint_and_as_described(cluster: tuple[int, int]) -> None:
    nodes, devices = cluster
    for each in groupings(nodes, devices):
        every = (each.group_of(rank, nodes, devices) for rank in range(nodes * devices))
        groups = {tuple(found) for found in every if found}
        members = [rank for group in groups for rank in group]
        assert groups
        assert len(members) == len(set(members))
        assert all(0 <= rank < nodes * devices for rank in members)
        for group in groups:
            homes = [rank // devices for rank in group]
            assert len(group) == each.members
            assert {homes.count(home) for home in homes} == {each.per_node}
            assert all(each.group_of(rank, nodes, devices) == list(group) for rank in group)


def test_sizes_of_groups_double_up_to_all() -> None:
    inside = [(2, 2), (4, 4), (6, 6)]
    one_of_each = [(2, 1), (3, 1)]
    whole_nodes = [(12, 6), (18, 6)]
    expected = [Grouping(*each) for each in inside + one_of_each + whole_nodes]
    assert groupings(nodes=3, devices=6) == expected
    assert groupings(nodes=16, devices=1) == [Grouping(size, 1) for size in (2, 4, 8, 16)]
    assert groupings(nodes=1, devices=1) == []


def test_a_node_alone_meets_nobody() -> None:
    assert partners(1) == []


@given(st.integers(2, 70))
def test_in_every_round_each_node_has_another_partner(nodes: int) -> None:
    rounds = partners(nodes)
    assert 1 <= len(rounds) <= MOST_ROUNDS
    met: set[tuple[int, int]] = set()
    for partner in rounds:
        assert len(partner) == nodes - nodes % 2
        assert all(partner[other] == one != other for one, other in partner.items())
        pairs = {(one, other) for one, other in partner.items() if one < other}
        assert not pairs & met
        met |= pairs


@given(
    latency=st.floats(1e-6, 3.0),
    bytes_per_second=st.floats(1e5, 1e12),
    members=st.integers(2, 2048),
)
def test_no_call_takes_long_and_the_whole_neither(
    latency: float, bytes_per_second: float, members: int
) -> None:
    """A slow network gets small messages; one of high latency still gets large ones."""
    most, spent, called = 1 << 30, 0.0, 0
    nbytes: int | None = in_parts(FIRST_BYTES, members)
    expected = first = latency + (nbytes or 0) / bytes_per_second
    slack = GROWTH * (nbytes or 0) / bytes_per_second  # the first message has bytes, too
    while nbytes is not None:
        assert nbytes % (4 * members) == 0
        seconds = latency + nbytes / bytes_per_second
        assert seconds <= first + CALL_SECONDS * 1.01 + slack
        spent += repeats(expected) * (seconds - first)
        called, before = called + 1, nbytes
        nbytes = next_bytes(before, seconds - first, most, members)
        assert nbytes is None or before < nbytes <= most + 4 * members
        expected = first + (seconds - first) * (nbytes or before) / before
    assert spent < 8 * (CALL_SECONDS + slack)
    assert called < 16
    reached = before / bytes_per_second
    assert before >= most / LEAST_GROWTH or reached > CALL_SECONDS / (GROWTH * LEAST_GROWTH)
