"""Consensus on rosters, checked in every order of events; and the check finds bugs put into it."""

from collections.abc import Collection

import pytest

from membership.model import Bounds, Histories, Model, explore
from paceline.membership import consensus
from paceline.membership.consensus import Acceptor, AcceptorState
from paceline.specs.runs.roster import Roster

EVERY_CHANGE = [
    Bounds(members=2, newcomers=1, proposals=2, crashes=1),
    Bounds(members=3, proposals=2, crashes=2),
    Bounds(members=4, proposals=2),
]
NIGHTLY = [
    Bounds(members=2, newcomers=1, proposals=3, crashes=1, known_crashes=False),
    Bounds(members=3, proposals=3, late_reports=False),
    Bounds(members=4, newcomers=1, proposals=2),
    Bounds(members=4, proposals=2, crashes=1, late_reports=False),
    Bounds(members=5, proposals=2, late_reports=False),
]

DEATHS_KNOWN_TO_ALL = Bounds(members=3, proposals=3, crashes=1, late_reports=False)


def _check(bounds: Bounds) -> None:
    found = explore(Model(bounds))
    print(f"{bounds}: {found.states:,} states, {found.transitions:,} transitions")
    assert not found.broken, "\n".join(found.broken)


@pytest.mark.parametrize("bounds", EVERY_CHANGE, ids=str)
def test_two_generations_never_make_progress(bounds: Bounds) -> None:
    _check(bounds)


@pytest.mark.nightly
@pytest.mark.parametrize("bounds", NIGHTLY, ids=str)
def test_two_generations_never_make_progress_in_larger_models(bounds: Bounds) -> None:
    _check(bounds)


@pytest.mark.nightly
def test_a_crash_that_both_sides_of_a_cut_know_of() -> None:
    """A member votes for one side's roster and dies; the other side does not count it any more.

    Both sides need a living member on its node to know that it is dead, and a cut between nodes
    leaves that to one side. A crash, a cut and two workers that hang on the dead one's node would
    show it.
    """
    _check(DEATHS_KNOWN_TO_ALL)


class ForgetsLastVotes(Model):
    """A dead member's neighbors report its state before it voted."""

    def last_vote(self, number: int) -> AcceptorState:
        """Return the state of the first generation."""
        del number
        return self._states[0]


def test_a_bug_is_found_where_a_dead_members_last_vote_is_not_known() -> None:
    assert explore(ForgetsLastVotes(DEATHS_KNOWN_TO_ALL)).broken


def _half_is_enough(ready: Collection[str], roster: Roster, dead: Collection[str]) -> bool:
    living = [name for name in roster.names if name not in dead]
    return not living or 2 * sum(name in ready for name in living) >= len(living)


def _only_the_first_roster_counts(
    ready: Collection[str], roster: Roster, dead: Collection[str]
) -> bool:
    return roster.generation > 0 or _REAL_MAJORITY(ready, roster, dead)


_REAL_MAJORITY = consensus._has_majority


@pytest.mark.parametrize("members", [2, 4])
def test_a_bug_is_found_where_every_half_is_enough(
    members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consensus, "_has_majority", _half_is_enough)
    assert explore(Model(Bounds(members))).broken


@pytest.mark.parametrize("members", [2, 3])
def test_a_bug_is_found_where_rosters_that_may_have_begun_do_not_count(
    members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consensus, "_has_majority", _only_the_first_roster_counts)
    assert explore(Model(Bounds(members, proposals=3, late_reports=False))).broken


class CountsAMissingVote(Model):
    """A leader that begins a generation although one member has not voted."""

    def may_begin(self, number: int, histories: Histories) -> bool:
        """Return whether all members but one have accepted."""
        missing = (
            not self._has_accepted(number, rank, history) for rank, history in enumerate(histories)
        )
        return sum(missing) <= 1


def test_a_bug_is_found_where_a_vote_that_was_not_cast_is_counted() -> None:
    assert explore(CountsAMissingVote(Bounds(3, proposals=3, late_reports=False))).broken


def _accept_any_version(self: Acceptor, roster: Roster, version: int) -> bool:
    now = self.state
    if roster.generation <= now.generation:
        return False
    self.state = AcceptorState(now.begun, roster, now.version + 1)
    return True


@pytest.mark.nightly
def test_a_bug_is_found_where_a_late_report_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs four proposals; of the first, only the last member hears."""
    model = Model(Bounds(3, proposals=4, late_reports=False))
    heard = next(
        world
        for proposed in model.after(model.first())
        for world in model.after(proposed)
        if "c: (1, ('a', 'b', 'c'))" in model.in_words(world)
    )
    monkeypatch.setattr(Acceptor, "accept", _accept_any_version)
    assert explore(model, heard).broken
