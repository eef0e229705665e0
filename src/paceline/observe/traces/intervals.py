"""Times at which something goes on, as intervals: how long, and how long two things do at once."""

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]
"""Begin and end, in any unit."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as intervals that lie apart, in their order; empty ones are left out."""
    joined: list[Interval] = []
    for begin, end in sorted(each for each in intervals if each[1] > each[0]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def length(intervals: Iterable[Interval]) -> float:
    """How long they take together; times that several have in common count once."""
    return sum(end - begin for begin, end in union(intervals))


def common(ones: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """The times that belong to both, as intervals that lie apart."""
    left, right = union(ones), union(others)
    found: list[Interval] = []
    at = other = 0
    while at < len(left) and other < len(right):
        begin = max(left[at][0], right[other][0])
        end = min(left[at][1], right[other][1])
        if begin < end:
            found.append((begin, end))
        if left[at][1] < right[other][1]:
            at += 1
        else:
            other += 1
    return found


def without(ones: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """The times that belong to the ones and not to the others."""
    left = union(ones)
    if not left:
        return []
    edges = [left[0][0], *(edge for each in union(others) for edge in each), left[-1][1]]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return common(left, gaps)


def in_rows(intervals: Sequence[Interval]) -> list[int]:
    """A row for each interval, from 0, such that in no row two overlap."""
    rows = [0] * len(intervals)
    ends: list[float] = []
    for number in sorted(range(len(intervals)), key=lambda number: intervals[number]):
        begin, end = intervals[number]
        row = next((row for row, last in enumerate(ends) if last <= begin), len(ends))
        ends[row : row + 1] = [end]
        rows[number] = row
    return rows
