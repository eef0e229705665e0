"""What members of a run say to each other."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, TypeAdapter

from paceline.specs.base import Spec
from paceline.specs.runs.roster import Member, Roster

Gone = dict[str, str]
"""Members that are no longer heard, by name, and why that is thought."""
PROCESS_GONE = "its process is gone"
"""Why, where the member's own node has said so."""


class Hello(Spec):
    """The first message of a connection: who has asked for it, and what for."""

    kind: Literal["hello"] = "hello"
    name: str = Field(max_length=100)
    generation: int
    """The last that it knows to have begun."""
    purpose: Literal["watch", "ask"]


class Beat(Spec):
    """The other end is alive."""

    kind: Literal["beat"] = "beat"


class Bye(Spec):
    """The other end leaves this connection in good order: because its generation has ended, or
    because its training has."""

    kind: Literal["bye"] = "bye"
    finished: bool


class Leave(Spec):
    """A generation ends: leave its exchanges and say where you stand."""

    kind: Literal["leave"] = "leave"
    begun: int
    """The last generation that the leader knows to have begun."""
    gone: Gone
    """Who is said to be; the leader asks them, too."""
    unreachable: list[str]
    """Those whom the leader could not reach before: whoever shares a node with one ends it."""
    why: str


class Left(Spec):
    """Where a member stands after it has left the exchanges of its generation."""

    kind: Literal["left"] = "left"
    begun: Roster | None
    """The last roster that it knows to have begun; None where the leader knows the same."""
    accepted: Roster | None
    word: NonNegativeInt
    facts: dict[str, Any]
    """What its training knows: its step, what it keeps for others."""
    dead: list[str]
    """Members of its node that it has seen to be dead."""


class Behind(Spec):
    """Who asks is of an older generation, and no longer in."""

    kind: Literal["behind"] = "behind"
    generation: int


class Propose(Spec):
    """Who is to be in the next generation, resting on these words."""

    kind: Literal["propose"] = "propose"
    roster: Roster
    words: dict[str, int]


class Begin(Spec):
    """All have accepted a roster: it begins."""

    kind: Literal["begin"] = "begin"
    roster: Roster
    facts: dict[str, dict[str, Any]]
    """What the members' trainings know, by name."""
    gone: Gone
    """Those of the generation before who are not in, and why."""
    why: str
    address: str
    """Where the members meet to make their groups, and on which port."""
    port: int


class Notice(Spec):
    """To who should lead: somebody is gone, or a generation cannot go on. It is answered when the
    next one has begun."""

    kind: Literal["notice"] = "notice"
    begun: int
    gone: Gone
    why: str


class Join(Spec):
    """A process wants to be a member, from the next edge of a step on."""

    kind: Literal["join"] = "join"
    member: Member
    facts: dict[str, Any]


class End(Spec):
    """The training cannot go on, for a reason that is not the loss of a worker; or, among those who
    say so, since too few of them are left."""

    kind: Literal["end"] = "end"
    begun: int
    name: str
    message: str
    too_few: bool = False


class Retire(Spec):
    """A member that holds the others up asks whether another can have its place."""

    kind: Literal["retire"] = "retire"
    begun: int
    name: str


class Vote(Spec):
    """Yes or no."""

    kind: Literal["vote"] = "vote"
    yes: bool


Question = Annotated[
    Leave | Propose | Begin | Notice | Join | End | Retire, Field(discriminator="kind")
]
Reply = Annotated[Left | Behind | Vote, Field(discriminator="kind")]


class Ask(Spec):
    """A question, and who else is to be asked by the one that it comes to."""

    kind: Literal["ask"] = "ask"
    question: Question
    rest: tuple[Member, ...] = ()


class Answer(Spec):
    """The replies of all who were asked and could be reached."""

    kind: Literal["answer"] = "answer"
    replies: dict[str, Reply]


Message = Annotated[Hello | Beat | Bye | Ask | Answer, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Message)


def read(body: bytes) -> Message:
    """The message in these bytes; a ValueError where there is none."""
    return _ADAPTER.validate_json(body)
