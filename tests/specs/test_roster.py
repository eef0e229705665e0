"""A roster's ranks: found at once among many members, and never those of another roster."""

import time

from paceline.specs import Member, Roster


def roster_of(names: list[str]) -> Roster:
    members = (Member(name=name, node="n0", address="127.0.0.1", port=1) for name in names)
    return Roster(generation=0, members=tuple(members), training=len(names))


def test_looking_for_all_members_takes_linear_time() -> None:
    """With 10,000 members, each regroup of each worker took 1.6 s for this."""
    names = [f"node{number // 8:05d}-{number:05d}" for number in range(10_000)]
    roster = roster_of(names)
    began = time.process_time()
    assert [roster.rank(name) for name in names] == list(range(10_000))
    assert time.process_time() - began < 0.5
    assert roster.rank("another") is None


def test_a_copy_with_other_members_has_their_ranks() -> None:
    roster = roster_of(["a", "b", "c"])
    assert (roster.rank("c"), roster.nodes) == (2, {"n0": [0, 1, 2]})
    fewer = roster.model_copy(update={"members": roster.members[1:]})
    assert [fewer.rank(name) for name in "abc"] == [None, 0, 1]
    assert (fewer.names, fewer.nodes) == (("b", "c"), {"n0": [0, 1]})
