"""Sets of ranks as ranges: a subtree's members have consecutive ranks."""

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import NonNegativeInt

RankRanges = Annotated[
    tuple[tuple[NonNegativeInt, NonNegativeInt], ...], "pairs of a first rank and the one after"
]


def ranges_of(ranks: Iterable[int]) -> RankRanges:
    """Return the ranges that cover exactly these ranks."""
    found: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if found and found[-1][1] == rank:
            found[-1] = found[-1][0], rank + 1
        else:
            found.append((rank, rank + 1))
    return tuple(found)


def ranks_in(ranges: RankRanges, count: int) -> Iterator[int]:
    """Yield the ranks in these ranges that are below `count`."""
    for first, end in ranges:
        yield from range(first, min(end, count))
