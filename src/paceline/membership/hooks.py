"""The interface between a member's control plane and its training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.membership.compact.missing import Absences
from paceline.membership.compact.rank_ranges import ranks_in
from paceline.membership.messages import Begin, End
from paceline.specs.errors import TOO_FEW_EXIT_CODE, PacelineError
from paceline.specs.runs.roster import Member, Roster


@dataclass(frozen=True)
class Hooks:
    """The control plane's callbacks into a member's training, and the planned size."""

    interrupt: Callable[[], None]
    """Interrupt all of the generation's collectives in progress."""
    kill_process: Callable[[], None]
    """Kill this process, because it does not return from a collective."""
    work_done: Callable[[], float]
    """Return a number that grows by 1 or more per second while the training works."""
    open_store: Callable[[], int]
    """Open the store for the rendezvous of the next process groups; return its port."""
    announce: Callable[[Roster, Member], None]
    """Publish the leader's address for processes that want to join."""
    find_leader: Callable[[], Member | None]
    """Return the leader that was published last."""
    fitting: Callable[[int], int]
    """Return how many of the given number of members can train."""
    run_ended: Callable[[], bool]
    """Return whether the run has ended and accepts no more members."""
    planned: int
    """Number of members in the plan."""


@dataclass(frozen=True)
class Begun:
    """A generation that has begun, with the facts about its members' trainings."""

    roster: Roster
    _begin: Begin
    lost: Absences
    """Members of the previous generation that are not in this one."""

    @property
    def why(self) -> str:
        """Why the previous generation ended."""
        return self._begin.why

    @property
    def store(self) -> tuple[str, int]:
        """Address and port of the store for the rendezvous of the new process groups."""
        return self._begin.address, self._begin.port

    def fact(self, name: str) -> list[Any]:
        """Return one fact about each member's training, by rank; None for one that has none."""
        found: list[Any] = [None] * len(self.roster.members)
        for each in self._begin.facts.get(name, ()):
            for rank in ranks_in(each.who.ranks, len(found)):
                found[rank] = each.of(rank)
        return found


class Ended(PacelineError):
    """The training has ended for this member, for a reason given by this or another member."""

    class_topic = "run-failed"

    def __init__(self, end: End, me: str) -> None:
        fix = "read that worker's log in the run's logs/"
        if end.too_few:
            fix = "continue from the last checkpoint with `paceline resume RUN`"
        super().__init__(end.message, fix=fix)
        self.exit_code = TOO_FEW_EXIT_CODE if end.too_few else 1
        self.generation = end.begun
        self.by_peer = end.name != me
        """Whether another member gave the reason."""
