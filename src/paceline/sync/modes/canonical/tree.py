"""A fixed order in which to add the parts of a batch, independent of their workers.

A sum of floating-point numbers depends on the order of its terms. Here that order is a binary tree
over the indices of the parts: neighbors first, then pairs of neighbors, and so on. If the number of
parts is no power of two, the missing ones at the end are left out. A worker with consecutive parts
adds the complete subtrees among them; the subtrees of all workers are added the same way.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")


class Subtree(NamedTuple):
    """The `2**level` parts from `begin` on, or all up to the last."""

    begin: int
    level: int


def subtrees(some: range, parts: int) -> list[Subtree]:
    """Return the largest subtrees that make up `some` of all parts, in their order."""
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
    """Adds subtrees, pushed in order, as far as they are neighbors."""

    def __init__(self, parts: int, add: Callable[[Value, Value], Value]) -> None:
        self._parts, self._add = parts, add
        self._added: list[tuple[Subtree, Value]] = []

    def push(self, subtree: Subtree, value: Value) -> None:
        """Add the sum over the next subtree, or of a single part at level 0."""
        begin, level = subtree
        while begin > 0 or 1 << level < self._parts:
            if begin >> level & 1:
                if not self._added or self._added[-1][0].level != level:
                    break  # another worker has the left one of the two
                (begin, _), left = self._added.pop()
                value = self._add(left, value)
            elif begin + (1 << level) < self._parts:
                break  # the right one follows; after the last part, there is none
            level += 1
        self._added.append((Subtree(begin, level), value))

    @property
    def values(self) -> list[Value]:
        """The sums over the subtrees so far; no two of these subtrees are neighbors."""
        return [value for _, value in self._added]
