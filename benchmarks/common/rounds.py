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
    return blocks_by_clock(ways, rounds, steps, {"wall": time.perf_counter})["wall"]


def blocks_by_clock(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    steps: int,
    clocks: Mapping[str, Callable[[], float]],
) -> dict[str, Rounds]:
    """Time the same blocks of steps by several clocks; return seconds per step for each clock."""
    found = {clock: Rounds() for clock in clocks}
    for number in range(rounds + 1):
        seconds: dict[str, dict[str, float]] = {clock: {} for clock in clocks}
        for way in in_turn(list(ways), number):
            begin = {clock: read() for clock, read in clocks.items()}
            for _ in range(steps):
                ways[way]()
            for clock, read in clocks.items():
                seconds[clock][way] = (read() - begin[clock]) / steps
        if number:
            for clock, of_round in seconds.items():
                found[clock].values.append(of_round)
    return found
