"""Members that do not answer, as messages name them: of a rack there are many, with few reasons."""

from typing import Literal

from paceline.membership.compact.rank_ranges import RankRanges
from paceline.specs.base import Spec


class Absence(Spec):
    """The reason why a member counts as lost."""

    reason: Literal["process ended", "unreachable", "silent"]
    """Whether its connection ended, none to it could be opened, or nothing came over it."""
    detail: str = ""

    def __str__(self) -> str:
        words = {
            "process ended": "its process is gone",
            "unreachable": "it cannot be reached",
            "silent": "it does not answer",
        }[self.reason]
        return f"{words} ({self.detail})" if self.detail else words


Absences = dict[str, Absence]
"""Lost members, by name."""


class Silence(Spec):
    """A member's missed heartbeats."""

    seconds: float
    hung: bool = False
    """Whether a member of its own node misses them: no network between the two can be at fault."""


Quiet = dict[str, Silence]
"""Members that missed heartbeats, by name."""


class Who(Spec):
    """Members, by their ranks in a roster that both ends know, or by name."""

    ranks: RankRanges = ()
    names: tuple[str, ...] = ()


class EqualAbsences(Spec):
    """Members that are lost for the same reason."""

    why: Absence
    who: Who


class EqualSilences(Spec):
    """Members that have been silent for equally long."""

    silence: Silence
    who: Who


class Missing(Spec):
    """Members that do not answer: of a rack there are many, with few reasons."""

    roster: str = ""
    """Digest of the roster in which they have their ranks."""
    lost: tuple[EqualAbsences, ...] = ()
    """Members reported as lost; the leader asks them, too."""
    quiet: tuple[EqualSilences, ...] = ()
    unresponsive: Who = Who()
    """Members that do not answer although their nodes do: a member on the same node kills them."""
