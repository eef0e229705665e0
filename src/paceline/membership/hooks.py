"""The interface between a member's control plane and its training."""

from collections.abc import Callable
from dataclasses import dataclass

from paceline.membership.messages import End
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


class Ended(PacelineError):
    """The training has ended for this member, for a reason given by this or another member."""

    def __init__(self, end: End, me: str) -> None:
        fix = "read that worker's log in the run's logs/"
        if end.too_few:
            fix = "continue from the last checkpoint with `paceline resume RUN`"
        super().__init__(end.message, fix=fix)
        self.exit_code = TOO_FEW_EXIT_CODE if end.too_few else 1
        self.generation = end.begun
        self.by_peer = end.name != me
        """Whether another member gave the reason."""
