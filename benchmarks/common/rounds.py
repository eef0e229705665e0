"""Interleaved rounds: every way once per round, so that all see the same machine."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Rounds:
    """One number per way and round."""

    values: list[dict[str, float]] = field(default_factory=list)

    def add(self, ways: Mapping[str, Callable[[], float]]) -> None:
        """Run every way once; every other round in reverse order."""
        order = in_turn(list(ways), len(self.values))
        self.values.append({way: ways[way]() for way in order})

    def of(self, way: str) -> list[float]:
        """Return the numbers of one way."""
        return [each[way] for each in self.values]

    def median(self, way: str) -> float:
        """Return the median of one way."""
        return statistics.median(self.of(way))

    def ratios(self, way: str, *bases: str) -> list[float]:
        """Divide, round by round, a way's number by the mean of the bases' numbers."""
        return [each[way] / statistics.mean(each[base] for base in bases) for each in self.values]

    def ratio(self, way: str, *bases: str) -> float:
        """Return the median of `ratios`."""
        return statistics.median(self.ratios(way, *bases))


def in_turn(ways: Sequence[str], number: int) -> list[str]:
    """Return the ways in the order of a round: every other round is reversed."""
    return list(ways)[:: -1 if number % 2 else 1]


def blocks(ways: Mapping[str, Callable[[], object]], rounds: int, steps: int) -> Rounds:
    """Time blocks of steps in one process; return seconds per step. The first round warms up."""
    found = Rounds()
    for number in range(rounds + 1):
        seconds = {}
        for way in in_turn(list(ways), number):
            begin = time.perf_counter()
            for _ in range(steps):
                ways[way]()
            seconds[way] = (time.perf_counter() - begin) / steps
        if number:
            found.values.append(seconds)
    return found
