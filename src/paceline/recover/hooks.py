"""What a member's control and its training are to each other."""

from collections.abc import Callable
from dataclasses import dataclass

from paceline.recover.messages import End
from paceline.specs.errors import PacelineError
from paceline.specs.roster import Member, Roster


@dataclass(frozen=True)
class Hooks:
    """What a member's training does for its control."""

    interrupt: Callable[[], None]
    """Make whoever waits in an exchange of the generation leave it."""
    open_store: Callable[[], int]
    """Open the place where the members of a generation make their groups; its port."""
    announce: Callable[[Roster, Member], None]
    """Write down where who wants to join finds the leader."""
    find_leader: Callable[[], Member | None]
    """What was written down last."""
    fitting: Callable[[int], int]
    """Of so many members, how many can train."""
    planned: int
    """Members that the training is to have."""


class Ended(PacelineError):
    """The training has ended for all members, as one of them has said."""

    exit_code = 1

    def __init__(self, end: End, me: str) -> None:
        super().__init__(end.message, fix="see what that worker said in the run's logs")
        self.by_peer = end.name != me
        """Whether this member is not the one that said so."""
