"""Membership of a run: numbered generations of workers."""

from functools import cached_property
from hashlib import sha256
from typing import Self

from pydantic import Field, NonNegativeInt, PositiveInt

from paceline.specs.base import Spec

JOINS = -1
"""Rank of a worker that joins after the rendezvous, or waits as a spare."""


def worker_in_words(rank: int) -> str:
    """Return a worker's name for messages of its launcher."""
    return "a worker that had joined" if rank == JOINS else f"worker {rank}"


class Member(Spec):
    """A worker process."""

    name: str = Field(min_length=1, max_length=100)
    """Unique to this process: its replacement has another."""
    node: str = Field(max_length=255)
    pid: NonNegativeInt = 0
    """Process ID on its node."""
    start_ticks: NonNegativeInt = 0
    """Start time of the process, in clock ticks since boot: the kernel may reuse its ID."""
    address: str = Field(max_length=45)
    """Address and port of its control socket."""
    port: PositiveInt = Field(lt=65536)
    memory_port: NonNegativeInt = Field(default=0, lt=65536)
    """Port from which others read its peer copies; 0 if it has none."""

    def is_process_of(self, other: "Member") -> bool:
        """Return whether both are the same process, which may have rejoined under another name."""
        mine, theirs = (
            (self.node, self.pid, self.start_ticks),
            (other.node, other.pid, other.start_ticks),
        )
        return mine == theirs


class Roster(Spec):
    """The members of a generation; a member's rank is its index in the list."""

    generation: int
    members: tuple[Member, ...] = Field(min_length=1)
    training: NonNegativeInt = 0
    """Number of training members, the first in the list; the others do not fit the layout and
    wait as spares."""

    # Cached: each regroup asks for them several times, and a roster has up to 100,000 members.
    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all members, by rank."""
        return tuple(each.name for each in self.members)

    @cached_property
    def ranks(self) -> dict[str, int]:
        """Rank of each member, by name."""
        return {name: rank for rank, name in enumerate(self.names)}

    @cached_property
    def digest(self) -> str:
        """A digest of it: a name belongs to one process, with one address, forever."""
        words = f"{self.generation} {self.training}\n" + "\n".join(self.names)
        return sha256(words.encode()).hexdigest()[:32]

    @cached_property
    def nodes(self) -> dict[str, list[int]]:
        """Ranks on each node; nodes are in the order of their first rank."""
        found: dict[str, list[int]] = {}
        for rank, member in enumerate(self.members):
            found.setdefault(member.node, []).append(rank)
        return found

    def __copy__(self) -> Self:
        """Return a copy that may get other members: without what is cached."""
        copied = super().__copy__()
        for cached in ("names", "ranks", "digest", "nodes"):
            copied.__dict__.pop(cached, None)
        return copied

    def rank(self, name: str) -> int | None:
        """Return a member's rank; None if it is not in the roster."""
        return self.ranks.get(name)
