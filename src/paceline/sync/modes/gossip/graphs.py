"""The peers of each worker, by graph.

In every graph, a worker sends to as many peers as it receives from, with equal weights. So the
matrix of a step is doubly stochastic: the mean over the workers does not change, and the weight
that push-sum (arXiv 1811.10792) carries with the parameters stays 1.
"""

from collections.abc import Callable
from hashlib import blake2b

Peers = list[tuple[int, ...]]
"""The receivers of each worker, by rank."""


def peers(graph: str, workers: int, step: int) -> Peers:
    """Return the receivers of each worker in a step; every worker computes the same."""
    return _GRAPHS[graph](workers, step)


def matrix(graph: str, workers: int, step: int) -> list[list[float]]:
    """Return the fraction of each worker's weights (column) that a worker (row) takes."""
    sending = peers(graph, workers, step)
    mixing = [[0.0] * workers for _ in range(workers)]
    for source, receivers in enumerate(sending):
        share = 1 / (1 + len(receivers))
        for receiver in (source, *receivers):
            mixing[receiver][source] += share
    return mixing


def _ring(workers: int, step: int) -> Peers:
    """Return both neighbors, in every step."""
    del step
    return [
        tuple(sorted({(rank - 1) % workers, (rank + 1) % workers} - {rank}))
        for rank in range(workers)
    ]


def _exponential(workers: int, step: int) -> Peers:
    """Return one peer, twice as far away as in the previous step: after log2(workers) steps all
    workers are mixed, to their exact mean if their number is a power of two."""
    period = (workers - 1).bit_length()
    if period == 0:
        return [()]
    far = 1 << step % period
    return [((rank + far) % workers,) for rank in range(workers)]


def _random(workers: int, step: int) -> Peers:
    """Return the next worker in a circle that is drawn anew in every step; with pairs, an odd
    number of workers would leave one out."""
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
