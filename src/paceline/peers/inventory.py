"""Who keeps what, and which is the newest state that can be had from those who are left."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from paceline.specs.base import Spec

MOST_IN_GROUP = 255
"""Members of a group: what Reed-Solomon codes over bytes can do."""


class Moment(Spec):
    """What belongs together: the parts of all workers of a generation after the same step."""

    generation: NonNegativeInt
    step: NonNegativeInt
    workers: PositiveInt

    @property
    def order(self) -> tuple[int, int]:
        """The newer, the larger."""
        return self.generation, self.step


class Row(Spec):
    """One row of parity: who of a group keeps it, and over whose bytes it is.

    With g members, of which p may be lost, each member's bytes are cut into g - p chunks. There are
    g stripes; each has one chunk of each of g - p members, and p rows of parity, which the other
    members keep. Chunk c of the member at place x lies in stripe x - p - c, as its c-th chunk.
    """

    group: tuple[NonNegativeInt, ...] = Field(min_length=2, max_length=MOST_IN_GROUP)
    """The ranks of its members."""
    parity: PositiveInt
    stripe: NonNegativeInt
    row: NonNegativeInt

    @model_validator(mode="after")
    def _fits(self) -> Self:
        size = len(self.group)
        if self.parity >= size or self.stripe >= size or self.row >= self.parity:
            raise ValueError("there is no such row")
        if len(set(self.group)) < size:
            raise ValueError("a worker is twice in the group")
        return self

    @property
    def chunks(self) -> int:
        """Of data in the stripe; also how many each member's bytes are cut into."""
        return len(self.group) - self.parity

    @property
    def data_ranks(self) -> tuple[int, ...]:
        """Whose chunks the stripe has: the first chunk of the first, the second of the second."""
        first = self.stripe + self.parity
        return tuple(
            self.group[(first + number) % len(self.group)] for number in range(self.chunks)
        )

    @property
    def keeper(self) -> int:
        """The rank that keeps this row."""
        return self.group[(self.stripe + self.row) % len(self.group)]


def rows_of_stripe(group: tuple[int, ...], parity: int, stripe: int) -> list[Row]:
    """All parity of a stripe."""
    return [Row(group=group, parity=parity, stripe=stripe, row=row) for row in range(parity)]


def stripe_of_chunk(group: tuple[int, ...], parity: int, rank: int, chunk: int) -> int:
    """Where a chunk of a member's bytes lies."""
    return (group.index(rank) - parity - chunk) % len(group)


class HeldMoment(Spec):
    """What a member has of one moment; only what is whole and was checked."""

    moment: Moment
    own: NonNegativeInt | None = None
    """The rank whose part this is because it was this member's own."""
    copies: tuple[NonNegativeInt, ...] = ()
    """The ranks of others whose parts are kept here."""
    rows: tuple[Row, ...] = ()


class Inventory(Spec):
    """All that a member has."""

    held: tuple[HeldMoment, ...] = ()


class Sources:
    """Where the parts of one moment are."""

    def __init__(self, moment: Moment, holdings: Mapping[str, Inventory]) -> None:
        self.moment = moment
        self.parts: dict[int, list[str]] = {}
        """Who has the whole part of a rank, whoever it belongs to first."""
        self.rows: dict[Row, list[str]] = {}
        for name, each in sorted(holdings.items()):
            for held in each.held:
                if held.moment == moment:
                    self._add(name, held)

    def _add(self, name: str, held: HeldMoment) -> None:
        if held.own is not None:
            self.parts.setdefault(held.own, []).insert(0, name)
        for rank in held.copies:
            self.parts.setdefault(rank, []).append(name)
        for row in held.rows:
            self.rows.setdefault(row, []).append(name)

    @cached_property
    def _groups(self) -> dict[int, set[tuple[tuple[int, ...], int]]]:
        found: dict[int, set[tuple[tuple[int, ...], int]]] = defaultdict(set)
        for row in self.rows:
            for rank in row.group:
                found[rank].add((row.group, row.parity))
        return found

    def rows_about(self, rank: int) -> list[Row]:
        """Those over this rank's bytes."""
        return [row for row in self.rows if rank in row.data_ranks]

    def rebuilding_group(self, rank: int) -> tuple[tuple[int, ...], int] | None:
        """A group, and its parity, of which enough is left to compute a rank's part."""
        for group, parity in sorted(self._groups.get(rank, ())):
            stripes = {
                stripe_of_chunk(group, parity, rank, chunk) for chunk in range(len(group) - parity)
            }
            if all(self._enough(group, parity, stripe) for stripe in stripes):
                return group, parity
        return None

    def _enough(self, group: tuple[int, ...], parity: int, stripe: int) -> bool:
        rows = rows_of_stripe(group, parity, stripe)
        data = sum(rank in self.parts for rank in rows[0].data_ranks)
        return data + sum(row in self.rows for row in rows) >= rows[0].chunks

    def missing(self) -> list[int]:
        """The ranks whose parts cannot be had."""
        return [
            rank
            for rank in range(self.moment.workers)
            if rank not in self.parts and self.rebuilding_group(rank) is None
        ]


def newest_whole(holdings: Mapping[str, Inventory]) -> Moment | None:
    """The newest moment of which every worker's part can be had from these members."""
    for moment in sorted(_moments(holdings.values()), key=lambda each: each.order, reverse=True):
        if not Sources(moment, holdings).missing():
            return moment
    return None


def _moments(holdings: Iterable[Inventory]) -> set[Moment]:
    return {held.moment for each in holdings for held in each.held}
