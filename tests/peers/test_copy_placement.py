"""Who keeps what of whom, and what can be had from those who are left: for any cluster."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.peers.copy_placement import copy_holders, duties, groups
from paceline.peers.inventory import HeldMoment, Inventory, Moment, Row, Sources, newest_whole
from paceline.specs import PacelineError

SOME_NODES = st.lists(st.sampled_from("abcde"), min_size=2, max_size=12)


def holdings_of(
    nodes: list[str], moment: Moment, parity_group: int, parity: int
) -> dict[str, Inventory]:
    """What all members have when a copy is complete."""
    found = {}
    for rank in range(len(nodes)):
        mine = duties(rank, nodes, parity_group=parity_group, parity=parity)
        held = HeldMoment(moment=moment, own=rank, copies=mine.copies, rows=mine.rows)
        found[f"member {rank}"] = Inventory(held=(held,))
    return found


@given(SOME_NODES)
def test_copies_are_on_other_nodes(nodes: list[str]) -> None:
    keepers = copy_holders(nodes)
    most = Counter(nodes).most_common(1)[0][1]
    for owner, keeper in enumerate(keepers):
        assert owner != keeper
        assert nodes[owner] != nodes[keeper] or len(set(nodes)) == 1
    if 2 * most <= len(nodes) or len(set(nodes)) == 1:
        assert sorted(keepers) == list(range(len(nodes)))  # everybody keeps one


@given(SOME_NODES, st.integers(2, 6), st.integers(1, 3))
def test_groups_are_spread_over_nodes(nodes: list[str], size: int, parity: int) -> None:
    if parity >= size:
        return
    found = groups(nodes, size, parity)
    assert sorted(rank for group in found for rank in group) == list(range(len(nodes)))
    for group in found:
        assert len(group) > 1
        on_one = Counter(nodes[rank] for rank in group)
        for node, count in on_one.items():
            assert count <= -(-nodes.count(node) // len(found))


@given(SOME_NODES, st.integers(0, 6), st.integers(1, 3), st.data())
def test_as_many_as_there_is_parity_may_be_lost(
    nodes: list[str], size: int, parity: int, data: st.DataObject
) -> None:
    if size == 1 or (size and parity >= size):
        return
    moment = Moment(generation=0, step=10, workers=len(nodes))
    all_of_them = holdings_of(nodes, moment, size, parity)
    if size:
        group = data.draw(st.sampled_from(groups(nodes, size, parity)))
        may_go = min(parity, len(group) - 1)
        lost = data.draw(st.permutations(group))[: may_go + 1]
    else:
        may_go, lost = 1, data.draw(st.permutations(range(len(nodes))))[:1]
    left = {f"member {rank}": all_of_them[f"member {rank}"] for rank in range(len(nodes))}
    for number, rank in enumerate(lost, start=1):
        del left[f"member {rank}"]
        assert newest_whole(left) == (moment if number <= may_go else None)


@given(SOME_NODES, st.integers(0, 6), st.integers(1, 3))
def test_a_relative_inventory_says_the_same(nodes: list[str], size: int, parity: int) -> None:
    if size == 1 or (size and parity >= size):
        return
    moment = Moment(generation=0, step=10, workers=len(nodes))
    for inventory in holdings_of(nodes, moment, size, parity).values():
        assert inventory.relative().absolute(inventory.origins) == inventory


@pytest.mark.parametrize(("size", "parity", "most"), [(0, 1, 1), (8, 1, 16), (16, 2, 32)])
def test_inventories_of_thousands_are_alike(size: int, parity: int, most: int) -> None:
    """So that a regroup sends a few of them, not one of each worker."""
    nodes = [f"node{rank // 8}" for rank in range(512)]
    moment = Moment(generation=0, step=10, workers=len(nodes))
    found = holdings_of(nodes, moment, size, parity).values()
    assert len({each.relative().model_dump_json() for each in found}) <= most


@given(st.data())
def test_the_newest_whole_moment_is_found(data: st.DataObject) -> None:
    """Against what follows directly from the definition of parity."""
    moments = [
        Moment(generation=generation, step=step, workers=3)
        for generation, step in ((0, 10), (0, 20), (1, 15))
    ]
    ranks = st.integers(0, 2)
    rows = [Row(group=(0, 1, 2), parity=1, stripe=stripe, row=0) for stripe in range(3)]
    held = st.builds(
        HeldMoment,
        moment=st.sampled_from(moments),
        own=st.none() | ranks,
        copies=st.tuples(ranks) | st.just(()),
        rows=st.sets(st.sampled_from(rows)).map(tuple),
    )
    some = st.lists(held, max_size=3, unique_by=lambda each: each.moment)
    found = data.draw(st.tuples(some, some, some))
    inventories = {
        name: Inventory(held=tuple(each)) for name, each in zip("abc", found, strict=True)
    }

    def whole(moment: Moment) -> bool:
        held = [each for one in inventories.values() for each in one.held if each.moment == moment]
        here = {each.own for each in held} | {rank for each in held for rank in each.copies}
        stripes = {row.stripe for each in held for row in each.rows}
        # Two chunks of each rank; the stripe whose parity it keeps itself has none of it.
        return all(
            rank in here
            or all(
                stripe in stripes and other in here
                for stripe in range(3)
                for other in range(3)
                if stripe != rank and other not in (stripe, rank)
            )
            for rank in range(3)
        )

    expected = [moment for moment in moments if whole(moment)]
    assert newest_whole(inventories) == (expected[-1] if expected else None)


@given(st.integers(2, 9), st.integers(1, 8))
def test_a_stripe_has_each_member_once(size: int, parity: int) -> None:
    if parity >= size:
        return
    group = tuple(range(100, 100 + size))
    kept = Counter[int]()
    chunks = set()
    for stripe in range(size):
        rows = [Row(group=group, parity=parity, stripe=stripe, row=row) for row in range(parity)]
        assert {*rows[0].data_ranks, *(row.keeper for row in rows)} == set(group)
        kept.update(row.keeper for row in rows)
        chunks |= {(rank, number) for number, rank in enumerate(rows[0].data_ranks)}
    assert set(kept.values()) == {parity}
    assert len(chunks) == size * (size - parity)  # every chunk of every member lies in one stripe


@pytest.mark.parametrize(
    "wrong",
    [
        {"parity": 3},
        {"stripe": 3},
        {"row": 1},
        {"group": (0, 1, 1)},
        {"group": (0,)},
    ],
)
def test_there_are_no_other_rows(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"group": (0, 1, 2), "parity": 1, "stripe": 0, "row": 0}
    Row.model_validate(right)
    with pytest.raises(ValueError, match=r"no such row|twice|at least 2"):
        Row.model_validate(right | wrong)


def test_groups_that_cannot_be() -> None:
    with pytest.raises(PacelineError, match=r"a parity group has only 2 workers") as caught:
        groups("ab", 2, 2)
    assert "or to 0 for whole copies" in str(caught.value.fix)
    with pytest.raises(PacelineError, match=r"faults.parity_group is 300, but"):
        groups("ab", 300, 2)


def test_fewer_workers_than_a_group_are_still_protected() -> None:
    """A run that has shrunk goes on with what can be had."""
    nodes = ["a", "b"]
    left = holdings_of(nodes, Moment(generation=3, step=1, workers=2), 8, 3)
    for lost in range(2):
        one = {name: each for name, each in left.items() if name != f"member {lost}"}
        assert newest_whole(one) is not None


def test_pairs_in_different_groups_may_be_lost() -> None:
    nodes = list("aabbccdd")
    moment = Moment(generation=0, step=1, workers=8)
    everybody = holdings_of(nodes, moment, 4, 1)
    of = {rank: group for group in groups(nodes, 4, 1) for rank in group}
    for pair in combinations(range(8), 2):
        left = {name: each for name, each in everybody.items() if int(name[7:]) not in pair}
        missing = Sources(moment, left).missing()
        assert missing == (list(pair) if of[pair[0]] == of[pair[1]] else [])


@pytest.mark.parametrize("workers", [16, 128, 1000])
@pytest.mark.parametrize(("group", "copies", "rows"), [(0, 1, 0), (8, 0, 1)])
def test_what_a_member_keeps_does_not_grow(
    workers: int, group: int, copies: int, rows: int
) -> None:
    """Eight workers to a node: one copy, or one row of parity, of one eighth of the members."""
    nodes = [f"n{rank // 8:03d}" for rank in range(workers)]
    assert set(Counter(copy_holders(nodes)).values()) == {1}
    for rank in {0, 7, workers // 2, workers - 1}:
        mine = duties(rank, nodes, parity_group=group, parity=1)
        assert (len(mine.copies), len(mine.rows)) == (copies, rows)
        assert all(len(row.data_ranks) == 7 for row in mine.rows)


def test_looking_for_the_rows_about_each_worker_reads_each_row_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [f"node {rank // 4}" for rank in range(64)]
    moment = Moment(generation=0, step=10, workers=len(nodes))
    sources = Sources(moment, holdings_of(nodes, moment, 8, 2))
    expected = [[row for row in sources.rows if rank in row.data_ranks] for rank in range(64)]
    whose, read = Row.__dict__["data_ranks"].fget, Counter[Row]()

    def counted(row: Row) -> tuple[int, ...]:
        read[row] += 1
        ranks: tuple[int, ...] = whose(row)
        return ranks

    monkeypatch.setattr(Row, "data_ranks", property(counted))
    assert [sources.rows_about(rank) for rank in range(64)] == expected
    assert set(read.values()) == {1}
