"""What a member's control and its training are to each other."""

from collections.abc import Callable
from dataclasses import dataclass

from paceline.membership.messages import End
from paceline.specs.errors import TOO_FEW_EXIT_CODE, PacelineError
from paceline.specs.runs.roster import Member, Roster


@dataclass(frozen=True)
class Hooks:
    """What a member's training does for its control."""

    interrupt: Callable[[], None]
    """Make whoever waits in an exchange of the generation leave it."""
    end_itself: Callable[[], None]
    """End this process, which cannot leave an exchange."""
    open_store: Callable[[], int]
    """Open the place where the members of a generation make their groups; its port."""
    announce: Callable[[Roster, Member], None]
    """Write down where who wants to join finds the leader."""
    find_leader: Callable[[], Member | None]
    """What was written down last."""
    fitting: Callable[[int], int]
    """Of so many members, how many can train."""
    is_over: Callable[[], bool]
    """Whether the training has ended, and nobody is wanted any more."""
    planned: int
    """Members that the training is to have."""


class Ended(PacelineError):
    """The training has ended for this member, as it or another one has said."""

    def __init__(self, end: End, me: str) -> None:
        fix = "see what that worker said in the run's logs"
        if end.too_few:
            fix = "`paceline resume RUN` goes on from the last checkpoint"
        super().__init__(end.message, fix=fix)
        self.exit_code = TOO_FEW_EXIT_CODE if end.too_few else 1
        self.generation = end.begun
        self.by_peer = end.name != me
        """Whether this member is not the one that said so."""
