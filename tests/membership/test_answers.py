"""Rosters as differences and replies in groups: the same members, votes and facts arrive."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.control_plane.crew import member
from paceline.membership.channel import parse
from paceline.membership.compact.answers import grouped, grouped_facts, ungrouped, ungrouped_facts
from paceline.membership.compact.missing import Absence, Missing, Silence
from paceline.membership.compact.roster_book import RosterBook
from paceline.membership.hooks import Begun
from paceline.membership.messages import Ask, Begin, Leave, Left, Message, Proposal, Reply, Vote
from paceline.specs.runs.roster import Roster

RANKS = st.sets(st.integers(0, 19))
REPLIES = st.one_of(
    st.booleans().map(lambda yes: Vote(yes=yes)),
    st.builds(
        lambda version, facts: Left(
            begun=None, accepted=None, version=version, facts=facts, dead=[], quiet={}
        ),
        st.integers(0, 1),
        st.dictionaries(
            st.sampled_from("abc"),
            st.one_of(st.integers(0, 1), st.none(), st.lists(st.integers(0, 20), max_size=2)),
        ),
    ),
)


def roster_of(ranks: list[int], generation: int = 0) -> Roster:
    return Roster(generation=generation, members=tuple(map(member, ranks)), training=len(ranks))


def sent(message: Any) -> Message:
    return parse(message.model_dump_json().encode())


@given(st.dictionaries(st.integers(0, 19), REPLIES), RANKS)
def test_exactly_those_who_replied_are_counted(given: dict[int, Reply], asked: set[int]) -> None:
    """An aggregated answer must not count a member that did not vote, or was not asked."""
    ours, theirs = RosterBook(), RosterBook()
    digest = ours.add(roster_of(list(range(12))))  # the others are newcomers
    theirs.add(roster_of(list(range(12))))
    names = {member(rank).name for rank in asked}
    replies = {member(rank).name: reply for rank, reply in given.items()}
    answer = sent(grouped(replies, theirs, digest))
    assert answer.kind == "answer"
    found = ungrouped(answer, ours, digest, names)
    assert found == {name: reply for name, reply in replies.items() if name in names}


@given(st.data(), st.integers(1, 8), st.integers(1, 8))
def test_answers_of_subtrees_add_up(data: st.DataObject, first: int, second: int) -> None:
    """The leader has each member's own vote, however many hops it passed."""
    book = RosterBook()
    digest = book.add(roster_of(list(range(first + second))))
    votes = {
        member(rank).name: Vote(yes=data.draw(st.booleans())) for rank in range(first + second)
    }
    names = list(votes)
    below = grouped({name: votes[name] for name in names[:first]}, book, digest)
    merged = ungrouped(below, book, digest, names[:first])
    merged |= {name: votes[name] for name in names[first:]}
    assert ungrouped(grouped(merged, book, digest), book, digest, names) == votes


@given(st.sets(st.integers(0, 999), max_size=3), st.sets(st.integers(0, 999), max_size=3))
def test_ranks_of_thousands_are_said_once(lost: set[int], lost_before: set[int]) -> None:
    """Each worker says which rank it had when it copied its state: not one value each."""
    book = RosterBook()
    left = [rank for rank in range(1000) if rank not in lost_before]
    digest = book.add(roster_of(left))
    had = {
        member(rank).name: {"held_from": [rank, left.index(rank)]}
        for rank in left
        if rank not in lost
    }
    facts = grouped_facts(had, book, digest)
    assert ungrouped_facts(facts, book, digest) == had
    assert len(facts["held_from"]) <= 1 + len(lost_before)
    newer = roster_of([rank for rank in left if rank not in lost], generation=1)
    begun = Begun(
        newer,
        Begin(
            roster=book.add(newer),
            facts=grouped_facts(had, book, book.add(newer)),
            missing=Missing(),
            why="",
            address="",
            port=1,
        ),
        lost={},
    )
    assert begun.fact("held_from") == [had[name]["held_from"] for name in newer.names]


@given(RANKS, RANKS, RANKS, st.booleans())
def test_missing_members_arrive_by_name(
    lost: set[int], quiet: set[int], unresponsive: set[int], knows_roster: bool
) -> None:
    ours, theirs = RosterBook(), RosterBook()
    roster = roster_of(list(range(15)))  # a newcomer that was lost has no rank yet
    digest = ours.add(roster)
    if knows_roster:
        theirs.add(roster)
    reasons = (Absence(reason="silent"), Absence(reason="process ended", detail="reset"))
    absences = {member(rank).name: reasons[rank % 2] for rank in lost}
    silences = {
        member(rank).name: Silence(seconds=float(rank // 4), hung=rank % 2 == 1) for rank in quiet
    }
    names = {member(rank).name for rank in unresponsive}
    missing = ours.missing(digest, absences, silences, names)
    ask = sent(Ask(question=Leave(asker="0", begun=0, accepted=0, missing=missing, why="")))
    assert isinstance(ask, Ask)
    if not theirs.learn(ask):
        assert not knows_roster
        ask = ours.in_full(ask)
        assert theirs.learn(ask)
    assert isinstance(ask.question, Leave)
    told = ask.question.missing
    assert theirs.lost(told) == absences
    assert theirs.quiet(told) == silences
    assert theirs.unresponsive(told) == names


def test_a_lost_rack_is_told_in_few_bytes() -> None:
    book, silent = RosterBook(), Absence(reason="silent")
    digest = book.add(roster_of(list(range(1000))))
    names = [member(rank).name for rank in range(376, 632)]
    missing = book.missing(digest, dict.fromkeys(names, silent), {}, names)
    assert len(missing.model_dump_json()) < 250


@given(RANKS, RANKS)
def test_a_roster_arrives_as_a_difference(left: set[int], joined: set[int]) -> None:
    ours, theirs = RosterBook(), RosterBook()
    base = roster_of(list(range(20)))
    kept = [rank for rank in range(20) if rank not in left]
    after = roster_of([*kept, *(100 + rank for rank in sorted(joined))] or [100], generation=1)
    change = ours.change(ours.add(base), after)
    rest = ours.select(after.members, change.digest)
    ask = sent(Ask(question=Proposal(asker="0", change=change, version=0, versions={}), rest=rest))
    assert isinstance(ask, Ask)
    assert not theirs.learn(ask), "it does not know the roster that the difference is based on"
    assert theirs.learn(ours.in_full(ask))
    theirs = RosterBook()
    theirs.add(base)
    assert theirs.learn(ask)
    assert theirs.roster(change.digest) == after
    assert theirs.selected(ask.rest) == list(after.members)


def test_another_roster_of_the_same_generation_is_not_taken_for_the_base() -> None:
    ours, theirs = RosterBook(), RosterBook()
    change = ours.change(ours.add(roster_of([0, 1, 2])), roster_of([0, 1], generation=1))
    theirs.add(roster_of([0, 1, 3]))
    ask = Ask(question=Proposal(asker="0", change=change, version=0, versions={}))
    assert not theirs.learn(ask)


@pytest.mark.parametrize("count", [10, 1_000])
def test_a_question_and_its_answer_do_not_grow_with_the_members(count: int) -> None:
    """At 1,000 members, a proposal had 220 kB and an answer 300 kB."""
    book = RosterBook()
    base = roster_of(list(range(count)))
    after = roster_of([rank for rank in range(count) if rank != 5], generation=1)
    change = book.change(book.add(base), after)
    rest = book.select(after.members, change.digest)
    ask = Ask(question=Proposal(asker="0", change=change, version=0, versions={}), rest=rest)
    left = Left(begun=None, accepted=None, version=0, facts={"updates": 7}, dead=[], quiet={})
    answer = grouped(dict.fromkeys(after.names, left), book, change.digest)
    assert len(ask.model_dump_json()) < 500
    assert len(answer.model_dump_json()) < 500
