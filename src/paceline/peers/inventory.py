"""Inventories of peer copies and parity, and the newest state the survivors can restore."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from paceline.specs.base import Spec

MOST_IN_GROUP = 255
"""Maximum members of a parity group, a limit of Reed-Solomon codes over bytes."""


class Moment(Spec):
    """One consistent state: the parts of all workers of a generation after the same step."""

    generation: NonNegativeInt
    step: NonNegativeInt
    workers: PositiveInt

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: newer moments are larger."""
        return self.generation, self.step


class Row(Spec):
    """One parity row: the ranks that it covers and the rank that stores it.

    A group of g members tolerates the loss of p. Each member's bytes are split into g - p chunks.
    There are g stripes. Each stripe has one chunk from each of g - p members and p parity rows,
    which the other p members store. Chunk c of the member at index x belongs to stripe x - p - c
    (mod g), as chunk c of that stripe.
    """

    group: tuple[NonNegativeInt, ...] = Field(min_length=2, max_length=MOST_IN_GROUP)
    """The ranks of the group's members."""
    parity: PositiveInt
    stripe: NonNegativeInt
    row: NonNegativeInt

    @model_validator(mode="after")
    def _fits(self) -> Self:
        size = len(self.group)
        if self.parity >= size or self.stripe >= size or self.row >= self.parity:
            raise ValueError("there is no such row")
        if len(set(self.group)) < size:
            raise ValueError("a worker appears twice in the group")
        return self

    @property
    def chunks(self) -> int:
        """Number of data chunks per stripe, and of chunks per member."""
        return len(self.group) - self.parity

    @property
    def data_ranks(self) -> tuple[int, ...]:
        """Ranks whose chunks are in the stripe, in order: rank number i contributes its chunk i."""
        first = self.stripe + self.parity
        return tuple(
            self.group[(first + number) % len(self.group)] for number in range(self.chunks)
        )

    @property
    def keeper(self) -> int:
        """The rank that stores this row."""
        return self.group[(self.stripe + self.row) % len(self.group)]


def rows_of_stripe(group: tuple[int, ...], parity: int, stripe: int) -> list[Row]:
    """Return all parity rows of a stripe."""
    return [Row(group=group, parity=parity, stripe=stripe, row=row) for row in range(parity)]


def stripe_of_chunk(group: tuple[int, ...], parity: int, rank: int, chunk: int) -> int:
    """Return the stripe that a member's chunk belongs to."""
    return (group.index(rank) - parity - chunk) % len(group)


class HeldMoment(Spec):
    """What a member holds of one moment: only complete, verified parts and parity rows."""

    moment: Moment
    own: NonNegativeInt | None = None
    """The rank that this member had in that generation, if it holds its own part."""
    copies: tuple[NonNegativeInt, ...] = ()
    """Other ranks whose parts this member holds."""
    rows: tuple[Row, ...] = ()

    def moved(self, by: int) -> Self:
        """Return this with all ranks moved around the ring of the moment's workers."""

        def to(rank: int) -> int:
            return (rank + by) % self.moment.workers

        return self.model_copy(
            update={
                "own": None if self.own is None else to(self.own),
                "copies": tuple(sorted(map(to, self.copies))),
                "rows": tuple(
                    row.model_copy(update={"group": tuple(map(to, row.group))}) for row in self.rows
                ),
            }
        )


class Inventory(Spec):
    """Everything that a member holds."""

    held: tuple[HeldMoment, ...] = ()

    @property
    def origins(self) -> list[int]:
        """The ranks that this member had: one per moment."""
        return [each.own or 0 for each in self.held]

    def relative(self) -> Self:
        """Return this inventory with ranks counted from `origins`.

        Members of thousands of workers then hold the same, and say so once.
        """
        moved = (each.moved(-at) for each, at in zip(self.held, self.origins, strict=True))
        return self.model_copy(update={"held": tuple(moved)})

    def absolute(self, origins: Sequence[int]) -> Self:
        """Return the inventory of which this is the relative one."""
        moved = (each.moved(at) for each, at in zip(self.held, origins, strict=True))
        return self.model_copy(update={"held": tuple(moved)})


class Sources:
    """The members that hold each part and parity row of one moment."""

    def __init__(self, moment: Moment, inventories: Mapping[str, Inventory]) -> None:
        self.moment = moment
        self.parts: dict[int, list[str]] = {}
        """Members that hold a rank's whole part; the part's owner comes first."""
        self.rows: dict[Row, list[str]] = {}
        for name, each in sorted(inventories.items()):
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

    @cached_property
    def _rows_about(self) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            for rank in row.data_ranks:
                found[rank].append(row)
        return found

    def rows_about(self, rank: int) -> list[Row]:
        """Return the rows that cover this rank's bytes."""
        return self._rows_about.get(rank, [])

    def rebuilding_group(self, rank: int) -> tuple[tuple[int, ...], int] | None:
        """Return a group and its parity with enough data left to rebuild a rank's part, or None."""
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
        """Return the ranks whose parts can be neither read nor rebuilt."""
        return [
            rank
            for rank in range(self.moment.workers)
            if rank not in self.parts and self.rebuilding_group(rank) is None
        ]


def newest_whole(inventories: Mapping[str, Inventory]) -> Moment | None:
    """Return the newest moment for which these members can supply every worker's part."""
    for moment in sorted(_moments(inventories.values()), key=lambda each: each.order, reverse=True):
        if not Sources(moment, inventories).missing():
            return moment
    return None


def _moments(inventories: Iterable[Inventory]) -> set[Moment]:
    return {held.moment for each in inventories for held in each.held}
