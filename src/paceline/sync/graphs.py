"""Who sends to whom when workers mix their weights with those of a few others.

In every graph here a worker sends to as many others as it receives from, and all shares are equal.
So the matrix of a step is doubly stochastic: the mean over the workers stays what it was, and the
weight that push-sum (arXiv 1811.10792) would carry beside the parameters stays 1.
"""

from collections.abc import Callable
from hashlib import blake2b

Peers = list[tuple[int, ...]]
"""To whom each worker sends, by its rank."""


def peers(graph: str, workers: int, step: int) -> Peers:
    """To whom each worker sends in a step; every worker comes to the same answer by itself."""
    return _GRAPHS[graph](workers, step)


def matrix(graph: str, workers: int, step: int) -> list[list[float]]:
    """What a worker (row) takes of the weights of each (column) in a step."""
    sending = peers(graph, workers, step)
    mixing = [[0.0] * workers for _ in range(workers)]
    for source, receivers in enumerate(sending):
        share = 1 / (1 + len(receivers))
        for receiver in (source, *receivers):
            mixing[receiver][source] += share
    return mixing


def _ring(workers: int, step: int) -> Peers:
    """Both neighbours, in every step."""
    del step
    return [
        tuple(sorted({(rank - 1) % workers, (rank + 1) % workers} - {rank}))
        for rank in range(workers)
    ]


def _exponential(workers: int, step: int) -> Peers:
    """One other, twice as far away as in the step before: after log2(workers) steps, all have
    something of all, and exactly the mean where the number of workers is a power of two."""
    period = (workers - 1).bit_length()
    if period == 0:
        return [()]
    far = 1 << step % period
    return [((rank + far) % workers,) for rank in range(workers)]


def _random(workers: int, step: int) -> Peers:
    """The next in a circle that is drawn anew in every step; with two by two instead, one of an odd
    number of workers would be left out."""
    if workers == 1:
        return [()]
    circle = sorted(range(workers), key=lambda rank: blake2b(f"{step}/{rank}".encode()).digest())
    following = dict(zip(circle, circle[1:] + circle[:1], strict=True))
    return [(following[rank],) for rank in range(workers)]


_GRAPHS: dict[str, Callable[[int, int], Peers]] = {
    "ring": _ring,
    "exponential": _exponential,
    "random": _random,
}
