"""The tree of who watches whom, at any size: everybody is watched once, and nobody by the crowd."""

from collections import Counter
from math import ceil, log

from hypothesis import example, given, settings
from hypothesis import strategies as st

from paceline.membership.control import FAN_OUT
from paceline.membership.heartbeats import children_of, parent_of, watchers_of_nodes
from paceline.specs.runs.roster import Member, Roster


def roster_of(sizes: list[int]) -> Roster:
    """Nodes with so many workers each."""
    return Roster(
        generation=0,
        members=tuple(
            Member(name=f"{node}:{worker}", node=str(node), address="10.0.0.1", port=1)
            for node, workers in enumerate(sizes)
            for worker in range(workers)
        ),
    )


def _is_first(roster: Roster, rank: int) -> bool:
    return roster.nodes[roster.members[rank].node][0] == rank


def depth(parents: list[int | None], rank: int) -> int:
    above = parents[rank]
    return 0 if above is None else 1 + depth(parents, above)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=150))
@example([1] * 1100)
def test_everybody_is_watched_by_one_other_and_nobody_watches_many(sizes: list[int]) -> None:
    roster = roster_of(sizes)
    ranks = range(len(roster.members))
    children = {rank: children_of(roster, rank) for rank in ranks}
    parents = [parent_of(roster, rank) for rank in ranks]
    watched = Counter(child for some in children.values() for child in some)
    assert watched == Counter(ranks[1:])
    assert all(parents[child] == rank for rank in ranks for child in children[rank])
    for rank in ranks:
        on_its_node = sizes[int(roster.members[rank].node)] - 1
        assert len(children[rank]) <= FAN_OUT + on_its_node
    of_other_nodes = {
        rank for rank in ranks if any(_is_first(roster, each) for each in children[rank])
    }
    assert set(watchers_of_nodes(roster)) == of_other_nodes
    levels = ceil(log(len(sizes), FAN_OUT)) if len(sizes) > 1 else 0
    assert max(depth(parents, rank) for rank in ranks) <= levels + 1
