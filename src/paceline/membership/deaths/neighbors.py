"""The other members on a node: which are dead, with their last votes, and which must be killed."""

from collections.abc import Iterable

from paceline.membership.deaths.last_votes import LastVotes
from paceline.membership.deaths.process_death import is_dead, kill
from paceline.membership.messages import LastVote
from paceline.specs.runs.roster import Member


def kill_lost(lost: Iterable[Member], votes: LastVotes) -> None:
    """Kill lost members' processes, but none that waits for a place under another name."""
    kill(each for each in lost if not votes.rejoins(each))


def votes_of_dead(suspects: Iterable[Member], votes: LastVotes, begun: int) -> list[LastVote]:
    """Return the known last votes of the suspects that are dead.

    `begun`: the generation that the leader knows to have begun.
    """
    found = []
    for each in suspects:
        last = votes.read(each.name) if is_dead(each) else None
        if last is not None:
            newer = None if last.begun.generation == begun else last.begun
            found.append(LastVote(name=each.name, begun=newer, accepted=last.accepted))
    return found
