"""Messages between members of a run."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, TypeAdapter

from paceline.specs.base import Spec
from paceline.specs.runs.roster import Member, Roster


class Absence(Spec):
    """The reason why a member counts as lost."""

    reason: Literal["process ended", "unreachable", "silent"]
    detail: str = ""

    @property
    def process_ended(self) -> bool:
        """Whether the member's own node closed its connection."""
        return self.reason == "process ended"

    def __str__(self) -> str:
        words = {
            "process ended": "its process is gone",
            "unreachable": "it cannot be reached",
            "silent": "it does not answer",
        }[self.reason]
        return f"{words} ({self.detail})" if self.detail else words


Absences = dict[str, Absence]
"""Lost members, by name."""


class Hello(Spec):
    """The first message of a connection: the caller's name and purpose."""

    kind: Literal["hello"] = "hello"
    name: str = Field(max_length=100)
    generation: int
    """The last generation that the caller knows to have begun."""
    purpose: Literal["watch", "ask"]


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
    begun: int
    """The last generation that the leader knows to have begun."""
    lost: Absences
    """Members reported as lost; the leader asks them, too."""
    unreachable: list[str]
    """Members that the leader failed to reach: a member on the same node kills them."""
    why: str


class Left(Spec):
    """A member's state after it has left the collectives of its generation."""

    kind: Literal["left"] = "left"
    begun: Roster | None
    """The last roster that the member knows to have begun; None if it equals the leader's."""
    accepted: Roster | None
    version: NonNegativeInt
    facts: dict[str, Any]
    """Facts about the member's training: its step, the peer copies that it holds."""
    dead: list[str]
    """Members on the same node whose processes this member has verified to be dead."""


class Outdated(Spec):
    """The caller's generation is older, and the caller is not in the newer one."""

    kind: Literal["outdated"] = "outdated"
    generation: int


class Proposal(Spec):
    """The leader's roster for the next generation, with the acceptor versions it rests on."""

    kind: Literal["proposal"] = "proposal"
    roster: Roster
    versions: dict[str, int]


class Begin(Spec):
    """The start of a generation whose roster all its members have accepted."""

    kind: Literal["begin"] = "begin"
    roster: Roster
    facts: dict[str, dict[str, Any]]
    """Facts about the members' trainings, by name."""
    lost: Absences
    """Members of the previous generation that are not in this one."""
    why: str
    address: str
    """Address of the store for the rendezvous of the new process groups."""
    port: int


class Notice(Spec):
    """A report to a possible leader: members are lost, or the generation ended for another reason.

    The reply comes when the next generation has begun.
    """

    kind: Literal["notice"] = "notice"
    begun: int
    lost: Absences
    why: str


class Join(Spec):
    """A process's request to become a member at the end of a step."""

    kind: Literal["join"] = "join"
    member: Member
    facts: dict[str, Any]


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
    Leave | Proposal | Begin | Notice | Join | End | Retire, Field(discriminator="kind")
]
Reply = Annotated[Left | Outdated | Vote, Field(discriminator="kind")]


class Ask(Spec):
    """A question, and the further members to which the receiver forwards it."""

    kind: Literal["ask"] = "ask"
    question: Question
    rest: tuple[Member, ...] = ()


class Answer(Spec):
    """The replies of all members that were asked and reached."""

    kind: Literal["answer"] = "answer"
    replies: dict[str, Reply]


Message = Annotated[Hello | Heartbeat | Goodbye | Ask | Answer, Field(discriminator="kind")]
MESSAGES: TypeAdapter[Message] = TypeAdapter(Message)
