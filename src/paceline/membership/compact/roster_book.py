"""The rosters that a member knows, so that messages name members by rank instead of in full.

With 1,000 members, a roster has 200 kB. Most members of a generation know the previous roster, so
they are sent the difference, and a digest that tells whether they derived the same roster. A member
that does not know the roster says so, and is sent everything in full.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from paceline.membership.compact.missing import (
    Absence,
    Absences,
    EqualAbsences,
    EqualSilences,
    Missing,
    Quiet,
    Silence,
    Who,
)
from paceline.membership.compact.rank_ranges import ranges_of, ranks_in
from paceline.membership.messages import (
    Ask,
    Begin,
    Leave,
    Notice,
    Proposal,
    Question,
    RosterChange,
    Selection,
)
from paceline.specs.runs.roster import Member, Roster

_KEPT = 16


def _missing_in(question: Question) -> Missing:
    return question.missing if isinstance(question, Leave | Notice | Begin) else Missing()


class RosterBook:
    """The last few rosters that a member has learned, and those it asks about, by digest."""

    def __init__(self) -> None:
        self._rosters: dict[str, Roster] = {}
        self._in_use: Counter[str] = Counter()

    def add(self, roster: Roster) -> str:
        """Add a roster and return its digest."""
        digest = roster.digest
        self._rosters[digest] = self._rosters.pop(digest, roster)
        for oldest in list(self._rosters)[: max(0, len(self._rosters) - _KEPT)]:
            if not self._in_use[oldest]:
                del self._rosters[oldest]
        return digest

    @contextmanager
    def keeping(self, digest: str) -> Iterator[None]:
        """Keep a roster during a question, whose answers name members by their ranks in it."""
        self._in_use[digest] += 1
        try:
            yield
        finally:
            self._in_use[digest] -= 1
            self._in_use += Counter()  # drops those that are not in use

    def roster(self, digest: str) -> Roster | None:
        """Return the roster with this digest, if it is known."""
        return self._rosters.get(digest)

    def select(self, members: Sequence[Member], digest: str) -> Selection:
        """Return a short description of members for a receiver that may know this roster."""
        ranks = self.ranks(digest)
        return Selection(
            roster=digest if ranks else "",
            ranks=ranges_of(ranks[each.name] for each in members if each.name in ranks),
            members=tuple(each for each in members if each.name not in ranks),
        )

    def selected(self, selection: Selection) -> list[Member] | None:
        """Return the selected members; None if the roster is not known."""
        if not selection.ranks:
            return list(selection.members)
        roster = self.roster(selection.roster)
        if roster is None:
            return None
        ranks = ranks_in(selection.ranks, len(roster.members))
        return [*(roster.members[rank] for rank in ranks), *selection.members]

    def who(self, names: Iterable[str], digest: str) -> Who:
        """Return a short description of names for a receiver that knows this roster."""
        ranks = self.ranks(digest)
        names = list(names)
        return Who(
            ranks=ranges_of(ranks[name] for name in names if name in ranks),
            names=tuple(name for name in names if name not in ranks),
        )

    def without(self, digest: str, newer: Roster) -> Who:
        """Return the members of a roster, if it is known, that are not in a newer one."""
        names = [name for name in self.ranks(digest) if newer.rank(name) is None]
        return self.who(names, digest)

    def names(self, who: Who, digest: str) -> list[str]:
        """Return the described names."""
        roster = self.roster(digest)
        members = () if roster is None else roster.members
        return [*(members[rank].name for rank in ranks_in(who.ranks, len(members))), *who.names]

    def missing(
        self, digest: str, lost: Absences, quiet: Quiet, unresponsive: Collection[str]
    ) -> Missing:
        """Return a short description of missing members for a receiver that knows this roster."""
        by_reason: dict[Absence, list[str]] = {}
        for name, why in lost.items():
            by_reason.setdefault(why, []).append(name)
        by_silence: dict[Silence, list[str]] = {}
        for name, silence in quiet.items():
            rounded = silence.model_copy(update={"seconds": round(silence.seconds, 1)})
            by_silence.setdefault(rounded, []).append(name)
        return Missing(
            roster=digest,
            lost=tuple(
                EqualAbsences(why=why, who=self.who(names, digest))
                for why, names in by_reason.items()
            ),
            quiet=tuple(
                EqualSilences(silence=silence, who=self.who(names, digest))
                for silence, names in by_silence.items()
            ),
            unresponsive=self.who(unresponsive, digest),
        )

    def lost(self, missing: Missing) -> Absences:
        """Return the lost members, by name."""
        return {
            name: each.why for each in missing.lost for name in self.names(each.who, missing.roster)
        }

    def quiet(self, missing: Missing) -> Quiet:
        """Return the silent members, by name."""
        return {
            name: each.silence
            for each in missing.quiet
            for name in self.names(each.who, missing.roster)
        }

    def unresponsive(self, missing: Missing) -> set[str]:
        """Return the names of the members that do not answer although their nodes do."""
        return set(self.names(missing.unresponsive, missing.roster))

    def change(self, base: str, roster: Roster) -> RosterChange:
        """Return a roster as its difference to a known one."""
        ranks, names = self.ranks(base), set(roster.names)
        kept = [name for name in ranks if name in names]
        if kept != list(roster.names[: len(kept)]):  # the order differs
            base, ranks, kept = "", {}, []
        return RosterChange(
            base=base,
            removed=ranges_of(rank for name, rank in ranks.items() if name not in names),
            added=roster.members[len(kept) :],
            generation=roster.generation,
            training=roster.training,
            digest=self.add(roster),
        )

    def learn(self, ask: Ask) -> bool:
        """Learn the roster in a question; return whether all rosters that it needs are known."""
        question = ask.question
        if isinstance(question, Proposal) and not self._apply(question.change):
            return False
        missing = _missing_in(question)
        if missing.roster and self.roster(missing.roster) is None:
            return False
        return self.selected(ask.rest) is not None

    def in_full(self, ask: Ask) -> Ask:
        """Return a question for a receiver that does not know the roster it refers to."""
        rest = self.selected(ask.rest)
        assert rest is not None
        question = ask.question
        if isinstance(question, Proposal):
            roster = self.roster(question.change.digest)
            assert roster is not None
            full = self.change("", roster)
            question = question.model_copy(update={"change": full})
        elif (missing := _missing_in(question)).roster:
            named = self.missing(
                "", self.lost(missing), self.quiet(missing), self.unresponsive(missing)
            )
            question = question.model_copy(update={"missing": named})
        return Ask(question=question, rest=Selection(roster=ask.rest.roster, members=tuple(rest)))

    def _apply(self, change: RosterChange) -> bool:
        if change.digest in self._rosters:
            return True
        before = self.roster(change.base)
        if before is None and change.base:
            return False
        members = before.members if before else ()
        removed = set(ranks_in(change.removed, len(members)))
        kept = tuple(each for rank, each in enumerate(members) if rank not in removed)
        if not kept and not change.added:
            return False
        roster = Roster(
            generation=change.generation, members=kept + change.added, training=change.training
        )
        return self.add(roster) == change.digest

    def ranks(self, digest: str) -> Mapping[str, int]:
        """Return the rank of each name in a roster; nothing if the roster is not known."""
        roster = self.roster(digest)
        return {} if roster is None else roster.ranks
