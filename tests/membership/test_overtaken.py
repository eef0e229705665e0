"""Members that others have overtaken: they act on nothing old, and find their place again."""

import asyncio
from typing import Any

import pytest

from benchmarks.control_plane.crew import FACTS, PER_NODE
from membership.test_last_votes import processes
from membership.test_participant import begun, one
from paceline.membership.compact.missing import Absence, Missing, Silence
from paceline.membership.deaths.process_death import is_dead
from paceline.membership.hooks import Begun
from paceline.membership.joining import rejoin
from paceline.membership.leader import Leader
from paceline.membership.messages import (
    Begin,
    Join,
    Leave,
    Left,
    Outdated,
    Proposal,
    Reply,
    Vote,
)
from paceline.membership.participant import Participant
from paceline.specs import Faults
from paceline.specs.runs.roster import Member, Roster

pytestmark = pytest.mark.usefixtures("kept_votes")
SOON_SECONDS = 10.0


async def crew_of(count: int, **told: Any) -> list[Participant]:
    """Members of generation 0, each alone on its node."""
    crew = [await one(PER_NODE * number, planned=count, **told) for number in range(count)]
    roster = Roster(generation=0, members=tuple(each.state.me for each in crew))
    for each in crew:
        each.state.start(roster)
    return crew


async def close(crew: list[Participant]) -> None:
    for each in crew:
        await each.state.close()


async def after_it_became_a_newcomer(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    (leader,) = await crew_of(1)
    newcomer = await one(PER_NODE, planned=2)
    newcomer.join(FACTS)
    leader.state.leave(FACTS, None)
    leader.state.join_queue.add(Join(member=newcomer.state.me, facts=FACTS))
    asked = Leader._ask_to_leave

    async def overtaken(self: Leader, *args: Any) -> Any:
        await rejoin(leader.state, [Outdated(generation=7, included=False)])
        leader.state.join_queue.add(Join(member=newcomer.state.me, facts=FACTS))
        return await asked(self, *args)

    monkeypatch.setattr(Leader, "_ask_to_leave", overtaken)
    try:
        await asyncio.wait_for(Leader(leader.state).lead(), SOON_SECONDS)
        return leader.state.generation, newcomer.state.generation
    finally:
        await close([leader, newcomer])


def test_a_leader_that_became_a_newcomer_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to begin a generation 0 of newcomers beside the others' generation 93."""
    assert asyncio.run(after_it_became_a_newcomer(monkeypatch)) == (-1, -1)


async def begun_by_one_while_others_accepted_another() -> list[Begun]:
    crew = await crew_of(3)
    first, second, third = (each.state for each in crew)
    members = first.roster.members
    one_more, two_more = (Roster(generation=each, members=members) for each in (1, 2))
    for each in (first, second, third):
        assert each.accept(one_more, 0, members[0].name)
    third.acceptor.begin(one_more)
    third.start(one_more)
    for each in (first, second):
        assert each.accept(two_more, 1, members[1].name)
    third.leave(FACTS, None)
    for each in (first, second):
        each.leave(FACTS, "the leaders undid each other's rosters")
    return await begun(crew)


def test_members_that_have_moved_on_fetch_the_one_that_began() -> None:
    """Each side used to wait for the other: the many under new names, the few for a majority."""
    names = {
        begin.roster.names for begin in asyncio.run(begun_by_one_while_others_accepted_another())
    }
    assert len(names) == 1
    assert len(names.pop()) == 3


async def asked_by_one_that_is_about_to_learn() -> tuple[Outdated, bool]:
    first, second = crew = await crew_of(2)
    following = Roster(generation=1, members=first.state.roster.members)
    for each in crew:
        assert each.state.accept(following, 0, first.state.me.name)
    first.state.acceptor.begin(following)
    first.state.start(following)
    me, roster = second.state.me, second.state.control.book.add(second.state.roster)
    leave = Leave(asker=me.name, begun=0, accepted=1, missing=second.state.missing(), why="")
    try:
        replies = await second.state.control.gather(leave, [first.state.me], roster=roster)
        outdated = replies[first.state.me.name]
        assert isinstance(outdated, Outdated)
        await rejoin(second.state, [outdated])
        return outdated, second.state.me is me
    finally:
        await close(crew)


def test_a_member_of_the_next_generation_keeps_its_name() -> None:
    outdated, keeps = asyncio.run(asked_by_one_that_is_about_to_learn())
    assert outdated == Outdated(generation=1, included=True)
    assert keeps


async def proposed_after_it_began() -> tuple[Reply, int, Reply, int]:
    """Reply to a proposal that rests on a report from before this member's training continued."""
    first, second = crew = await crew_of(2)
    members, ask = first.state.roster.members, first.state.control.gather
    me, him, book = members[0].name, members[1], first.state.control.book
    zero, one_more, two_more = (Roster(generation=each, members=members) for each in range(3))
    second.state.leave(FACTS, None)
    leave = Leave(asker=me, begun=0, accepted=1, missing=Missing(), why="one is lost")
    begin = Begin(
        roster=one_more.digest, facts={}, missing=Missing(), why="", address="127.0.0.1", port=1
    )

    def proposal(roster: Roster, version: int) -> Proposal:
        change = book.change(book.add(zero), roster)
        return Proposal(asker=me, change=change, version=version, versions={})

    try:
        await ask(proposal(one_more, 0), [him])
        left = (await ask(leave, [him]))[him.name]
        assert isinstance(left, Left)
        began = (await ask(begin, [him]))[him.name]
        await second.state.next
        late = (await ask(proposal(two_more, left.version), [him]))[him.name]
        return began, second.state.generation, late, second.state.accepted_generation
    finally:
        await close(crew)


def test_a_member_whose_training_continues_accepts_nothing_it_has_not_left_for() -> None:
    """A later generation began beside its training, which was not interrupted or told of it."""
    found = asyncio.run(proposed_after_it_began())
    assert found == (Vote(yes=True), 1, Vote(yes=False), 1)


async def proposed_under_an_old_name() -> tuple[Reply, int, bool]:
    """Propose a roster to a member that has become a newcomer after its report."""
    first, second = crew = await crew_of(2)
    book, him = first.state.control.book, second.state.me
    roster = first.state.roster
    change = book.change(book.add(roster), roster.model_copy(update={"generation": 5}))
    proposal = Proposal(asker=first.state.me.name, change=change, version=0, versions={})
    second.state.leave(FACTS, None)
    await rejoin(second.state, [Outdated(generation=3, included=False)])
    name = second.state.me.name
    try:
        renamed = him.model_copy(update={"name": name})
        reply = (await first.state.control.gather(proposal, [renamed]))[name]
        return reply, second.state.accepted_generation, name != him.name
    finally:
        await close(crew)


def test_a_newcomer_accepts_no_roster_without_it() -> None:
    """Its next leader took that roster for one that may have begun, and waited for its members."""
    assert asyncio.run(proposed_under_an_old_name()) == (Vote(yes=False), -1, True)


async def begun_after_its_leader_followed_another(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    first, second = crew = await crew_of(2)
    asked, questions = Leader._ask, []

    async def overtaken(self: Leader, question: Any, *args: Any) -> Any:
        questions.append(question.kind)
        replies = await asked(self, question, *args)
        state = first.state
        if isinstance(question, Proposal) and state.accepted_generation == 1:
            later = Roster(generation=2, members=state.roster.members)
            assert state.accept(later, state.acceptor.state.version, second.state.me.name)
        return replies

    monkeypatch.setattr(Leader, "_ask", overtaken)
    for each in crew:
        each.state.leave(FACTS, "both have left")
    assert [each.roster.generation for each in await begun(crew)] == [3, 3]
    return questions


def test_a_leader_that_follows_another_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others began its roster, which cannot make progress without it."""
    questions = asyncio.run(begun_after_its_leader_followed_another(monkeypatch))
    assert questions.count("begin") == 1


async def killed_after_it_was_renamed(process: Member, *, renamed: bool) -> bool:
    """Return whether a neighbor ends a member that does not answer under its old name."""
    crew = [await one(rank, planned=3) for rank in (0, PER_NODE, PER_NODE + 1)]
    leader, overtaken, neighbor = (each.state for each in crew)
    about = {"pid": process.pid, "start_ticks": process.start_ticks}
    overtaken.rename(overtaken.me.model_copy(update=about))
    roster = Roster(generation=0, members=(leader.me, overtaken.me, neighbor.me))
    for each in crew:
        each.state.start(roster)
        each.state.leave(FACTS, None)
    if renamed:
        await rejoin(overtaken, [Outdated(generation=7, included=False)])
    name = roster.names[1]
    missing = leader.control.book.missing(
        leader.control.book.add(roster), {name: Absence(reason="silent")}, {}, [name]
    )
    leave = Leave(asker=leader.me.name, begun=0, accepted=0, missing=missing, why="it is silent")
    try:
        await leader.control.gather(leave, [neighbor.me], roster=roster.digest)
        return is_dead(process)
    finally:
        await close(crew)


@pytest.mark.parametrize("renamed", [False, True])
def test_a_neighbor_does_not_kill_who_waits_under_a_new_name(renamed: bool) -> None:
    """Only it had reached a newer generation; its leader missed it for long enough."""
    with processes(1) as (process,):
        assert asyncio.run(killed_after_it_was_renamed(process, renamed=renamed)) is not renamed


async def overtaken_followers() -> tuple[list[str], float]:
    faults = Faults(lease_seconds=20)
    found: list[Member] = []
    crew = await crew_of(5, faults=faults, find_leader=lambda: found[0])
    found.append(crew[0].state.me)
    newer = Roster(generation=1, members=crew[0].state.roster.members[:3])
    for each in crew[:3]:
        assert each.state.accept(newer, 0, crew[0].state.me.name)
        each.state.acceptor.begin(newer)
        each.state.start(newer)
    began = asyncio.get_running_loop().time()
    try:
        for each in crew[3:]:
            each.state.lost = dict.fromkeys(newer.names, Absence(reason="silent"))
            each.state.leave(FACTS, "the others cannot be reached")
        while len(crew[0].state.join_queue.current) < 2:
            await asyncio.sleep(0.01)
        seconds = asyncio.get_running_loop().time() - began
        return sorted(each.member.name for each in crew[0].state.join_queue.current), seconds
    finally:
        await close(crew)


def test_followers_learn_with_their_leader_that_they_are_overtaken() -> None:
    """After a cut, each found out by itself, one behind the other: 12 s for 12 members."""
    names, seconds = asyncio.run(asyncio.wait_for(overtaken_followers(), SOON_SECONDS))
    assert all(name.endswith("+1") for name in names)
    assert seconds < 5  # half a lease is 10


async def unresponsive_over_time(*, hung: bool) -> list[list[str]]:
    (first, second) = crew = await crew_of(2)
    leader = Leader(first.state)
    now = 100.0
    leader._now = lambda: now
    absent = second.state.me
    neighbor = absent.model_copy(update={"name": "neighbor"})
    leader._known["neighbor"] = neighbor
    lease = first.state.faults.lease_seconds
    found = []
    try:
        for answered in ((), ("neighbor",), ("neighbor",)):
            if hung:
                silence = {absent.name: Silence(seconds=lease, hung=True)}
                first.state.silences.note(first.state.roster, silence)
            leader._absent = [each.name for each in (absent, neighbor) if each.name not in answered]
            if answered:
                leader._answered_at.setdefault(neighbor.node, now)
            found.append(leader._unresponsive())
            now += lease
        return found
    finally:
        await close(crew)


def test_neighbors_behind_a_mended_cut_are_not_killed_at_once() -> None:
    """Neighbors ended 36 living workers that had not answered within an eighth of the lease."""
    absent = asyncio.run(unresponsive_over_time(hung=False))
    assert [len(each) for each in absent] == [0, 0, 1]


def test_a_hung_member_is_killed_at_once() -> None:
    absent = asyncio.run(unresponsive_over_time(hung=True))
    assert [len(each) for each in absent] == [1, 1, 1]
