"""Who is in a run: numbered generations of members."""

from pydantic import Field, NonNegativeInt, PositiveInt

from paceline.specs.base import Spec

JOINS = -1
"""The rank of a worker that comes when the others have met, or stands by."""


def worker_in_words(rank: int) -> str:
    """A worker as its launcher knows it."""
    return "a worker that had joined" if rank == JOINS else f"worker {rank}"


class Member(Spec):
    """A worker process."""

    name: str = Field(min_length=1, max_length=100)
    """Of this process alone: one that is started in its place has another."""
    node: str = Field(max_length=255)
    pid: NonNegativeInt = 0
    """Of the process, on its node."""
    born: NonNegativeInt = 0
    """When the kernel started it, in clock ticks since boot: another one may get its number."""
    address: str = Field(max_length=45)
    """Where its control listens, and on which port."""
    port: PositiveInt = Field(lt=65536)
    memory_port: NonNegativeInt = Field(default=0, lt=65536)
    """Where others read the state that it keeps; 0 where it keeps none."""

    def is_process_of(self, other: "Member") -> bool:
        """Whether both are the same process, which may have come anew under another name."""
        mine, theirs = (self.node, self.pid, self.born), (other.node, other.pid, other.born)
        return mine == theirs


class Roster(Spec):
    """The members of a generation; a member's rank is its place in the list."""

    generation: int
    members: tuple[Member, ...] = Field(min_length=1)
    training: NonNegativeInt = 0
    """The first so many of them train; the others, for whom the layout has no place, stand by."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of all members, by rank."""
        return tuple(each.name for each in self.members)

    @property
    def nodes(self) -> dict[str, list[int]]:
        """The ranks on each node, in the order of the first of them."""
        found: dict[str, list[int]] = {}
        for rank, member in enumerate(self.members):
            found.setdefault(member.node, []).append(rank)
        return found

    def rank(self, name: str) -> int | None:
        """The place of a member; None for who is not in."""
        return next((rank for rank, each in enumerate(self.members) if each.name == name), None)
