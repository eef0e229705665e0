"""One order in which the parts of a batch are added, whoever has which of them.

The sum of numbers with a point that floats depends on the order in which they are added. Here that
is a binary tree over the numbers of the parts: neighbours first, then pairs of neighbours, and so
on. What is missing at its end, where the parts are no power of two, is left out. Whoever has some
parts that follow each other adds up the subtrees that are complete among them; of the subtrees of
all, the same way leads to the sum.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")


class Subtree(NamedTuple):
    """The parts from `begin` on, two to the power of `level` of them, or all up to the last."""

    begin: int
    level: int


def subtrees(some: range, parts: int) -> list[Subtree]:
    """The largest subtrees that these of all parts are made of, in their order."""
    found, begin = [], some.start
    while begin < some.stop:
        level = 0
        while (
            1 << level < parts
            and begin % (2 << level) == 0
            and (begin + (2 << level) <= some.stop or some.stop == parts)
        ):
            level += 1
        found.append(Subtree(begin, level))
        begin += 1 << level
    return found


class TreeSum(Generic[Value]):
    """Adds up subtrees, given one after the other, as far as they belong together."""

    def __init__(self, parts: int, add: Callable[[Value, Value], Value]) -> None:
        self._parts, self._add = parts, add
        self._added: list[tuple[Subtree, Value]] = []

    def push(self, subtree: Subtree, value: Value) -> None:
        """The sum over the next subtree, or a single part at level 0."""
        begin, level = subtree
        while begin > 0 or 1 << level < self._parts:
            if begin >> level & 1:
                if not self._added or self._added[-1][0].level != level:
                    break  # somebody else has the left one of the two
                (begin, _), left = self._added.pop()
                value = self._add(left, value)
            elif begin + (1 << level) < self._parts:
                break  # the right one of the two is yet to come; after the last part, there is none
            level += 1
        self._added.append((Subtree(begin, level), value))

    @property
    def values(self) -> list[Value]:
        """The sums over the subtrees so far, of which no two belong together."""
        return [value for _, value in self._added]
