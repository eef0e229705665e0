"""Messages between members of a run."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, TypeAdapter

from paceline.membership.compact.missing import Missing, Quiet, Who
from paceline.membership.compact.rank_ranges import RankRanges
from paceline.specs.base import Spec
from paceline.specs.runs.roster import Member, Roster


class Hello(Spec):
    """The first message of a connection: the caller's name and purpose."""

    kind: Literal["hello"] = "hello"
    name: str = Field(max_length=100)
    generation: int
    """The last generation that the caller knows to have begun."""
    purpose: Literal["watch", "ask", "start"]


class Heartbeat(Spec):
    """A sign of life."""

    kind: Literal["heartbeat"] = "heartbeat"


class Goodbye(Spec):
    """The orderly end of a connection, because the generation or the training has ended."""

    kind: Literal["goodbye"] = "goodbye"
    finished: bool


class Leave(Spec):
    """The leader's request to leave the generation's collectives and report one's state."""

    kind: Literal["leave"] = "leave"
    asker: str
    """The leader's name."""
    begun: int
    """The last generation that the leader knows to have begun."""
    accepted: int
    """The last generation that it has accepted."""
    missing: Missing
    why: str


class LastVote(Spec):
    """The last state of a member that is dead."""

    name: str
    begun: Roster | None
    """The last roster that it is known to have begun; None if it equals the leader's."""
    accepted: Roster | None


class Left(Spec):
    """A member's state after it has left the collectives of its generation."""

    kind: Literal["left"] = "left"
    begun: Roster | None
    """The last roster that the member knows to have begun; None if it equals the leader's."""
    accepted: Roster | None
    version: NonNegativeInt
    facts: dict[str, Any]
    """Facts about the member's training: its step, the peer copies that it holds."""
    dead: list[LastVote]
    """Members on the same node whose processes this member has verified to be dead."""
    quiet: Quiet


class Outdated(Spec):
    """The caller's generation is older than this one, which has begun."""

    kind: Literal["outdated"] = "outdated"
    generation: int
    included: bool
    """Whether the caller is in the newer one, too, and has yet to learn that it began."""
    excluded: Who = Who()
    """Members of the caller's roster that are not in the newer one."""


class RosterChange(Spec):
    """A roster as the difference to one that most of its members know."""

    base: str
    """Digest of the known roster; empty for none, where all members are added."""
    removed: RankRanges
    """Ranks in the known roster that are not in this one. The others keep their order."""
    added: tuple[Member, ...]
    """Members after them."""
    generation: int
    training: NonNegativeInt
    digest: str
    """Digest of the resulting roster."""


class Proposal(Spec):
    """The leader's roster for the next generation, with the acceptor versions it is based on."""

    kind: Literal["proposal"] = "proposal"
    asker: str
    """The leader's name."""
    change: RosterChange
    version: NonNegativeInt
    """The version of most members."""
    versions: dict[str, NonNegativeInt]
    """The versions of the others."""


class EqualFacts(Spec):
    """One fact about the trainings of all members for which it is the same."""

    value: Any
    who: Who
    less_rank: bool = False
    """Whether the value is a list of integers, each less the member's rank in the roster."""

    def of(self, rank: int) -> Any:
        """Return the fact of the member with this rank."""
        return [each + rank for each in self.value] if self.less_rank else self.value


Facts = dict[str, tuple[EqualFacts, ...]]
"""Facts about members' trainings, by the fact's name."""


class Begin(Spec):
    """The start of a generation whose roster all its members have accepted."""

    kind: Literal["begin"] = "begin"
    roster: str
    """Digest of the roster."""
    facts: Facts
    """Facts about the members' trainings, by their ranks in the roster."""
    missing: Missing
    """Members of the previous generation that are not in this one."""
    why: str
    address: str
    """Address of the store for the rendezvous of the new process groups."""
    port: int


class Notice(Spec):
    """A report to a possible leader: members are lost, or the generation ended for another reason.

    The reply comes when the next generation has begun, or before the caller's patience ends.
    """

    kind: Literal["notice"] = "notice"
    asker: str
    """The name of the member that notifies."""
    begun: int
    accepted: int
    """The last generation that it has accepted."""
    missing: Missing
    why: str


class Join(Spec):
    """A process's request to become a member at the end of a step."""

    kind: Literal["join"] = "join"
    member: Member
    facts: dict[str, Any]


class Overtaken(Spec):
    """News for members of a generation that others continue without them."""

    kind: Literal["overtaken"] = "overtaken"
    begun: int
    """Their generation."""
    newer: int
    """The one of the others."""


class End(Spec):
    """The end of the training: a worker failed, or too few members are left."""

    kind: Literal["end"] = "end"
    begun: int
    name: str
    message: str
    too_few: bool = False


class Retire(Spec):
    """A slow member's question whether a waiting process can replace it."""

    kind: Literal["retire"] = "retire"
    begun: int
    name: str


class Vote(Spec):
    """Yes or no."""

    kind: Literal["vote"] = "vote"
    yes: bool


Question = Annotated[
    Leave | Proposal | Begin | Notice | Join | Overtaken | End | Retire, Field(discriminator="kind")
]
Reply = Annotated[Left | Outdated | Vote, Field(discriminator="kind")]


class Selection(Spec):
    """Members, by their ranks in a roster that both ends know, or in full."""

    roster: str = ""
    """Digest of the roster."""
    ranks: RankRanges = ()
    members: tuple[Member, ...] = ()


class Ask(Spec):
    """A question, and the further members to which the receiver forwards it."""

    kind: Literal["ask"] = "ask"
    question: Question
    rest: Selection = Selection()


class UnknownRoster(Spec):
    """The receiver does not know a roster that a question refers to: send it in full."""

    kind: Literal["unknown roster"] = "unknown roster"


class EqualReplies(Spec):
    """The reply of all members that gave the same one."""

    reply: Reply
    """Without facts."""
    who: Who


class Answer(Spec):
    """The replies of all members that were asked and reached, with ranks in the question's roster.

    Every member adds itself, so nobody can be counted that did not reply.
    """

    kind: Literal["answer"] = "answer"
    replies: tuple[EqualReplies, ...]
    facts: Facts
    """Facts about the trainings of members that have left their generation."""


class Welcome(Spec):
    """A contact's reply to a worker that arrives at the start of a run."""

    kind: Literal["welcome"] = "welcome"
    address: str = Field(max_length=45)
    """Address of the interface to use, for workers of the contact's node."""


class Arrivals(Spec):
    """What workers say when they arrive, by rank."""

    kind: Literal["arrivals"] = "arrivals"
    said: dict[NonNegativeInt, str]


class Conclusion(Spec):
    """What worker 0 concludes from all arrivals."""

    kind: Literal["conclusion"] = "conclusion"
    said: str


Message = Annotated[
    Hello | Heartbeat | Goodbye | Ask | UnknownRoster | Answer | Welcome | Arrivals | Conclusion,
    Field(discriminator="kind"),
]
MESSAGES: TypeAdapter[Message] = TypeAdapter(Message)
