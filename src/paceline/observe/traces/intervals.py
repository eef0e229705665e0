"""Set operations on time intervals: union, intersection, difference and total length."""

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]
"""Begin and end, in any unit."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals into disjoint ones, in order; drop empty ones."""
    joined: list[Interval] = []
    for begin, end in sorted(each for each in intervals if each[1] > each[0]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def length(intervals: Iterable[Interval]) -> float:
    """Return the total time covered; overlapping time counts once."""
    return sum(end - begin for begin, end in union(intervals))


def common(ones: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return the intersection, as disjoint intervals."""
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
    """Return the times in `ones` that are not in `others`."""
    left = union(ones)
    if not left:
        return []
    edges = [left[0][0], *(edge for each in union(others) for edge in each), left[-1][1]]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return common(left, gaps)


def in_rows(intervals: Sequence[Interval]) -> list[int]:
    """Assign each interval a row, from 0, so that no two intervals overlap within a row."""
    rows = [0] * len(intervals)
    ends: list[float] = []
    for number in sorted(range(len(intervals)), key=lambda number: intervals[number]):
        begin, end = intervals[number]
        row = next((row for row, last in enumerate(ends) if last <= begin), len(ends))
        ends[row : row + 1] = [end]
        rows[number] = row
    return rows
