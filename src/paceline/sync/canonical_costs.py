"""What `canonical` sends and keeps."""

from functools import cache

from paceline.specs.shares import slice_of
from paceline.sync.traffic import NUMBER_BYTES, Traffic, copied, transfer
from paceline.sync.tree import subtrees


def canonical_traffic(parts: int, workers: int, parameters: int, buckets: int) -> Traffic:
    """Each worker sends the sums over its subtrees to those who own a piece of them, and gathers
    the sums over all."""
    each = -(-parameters // buckets)
    sums = subtrees_of_workers(parts, workers)
    mean = sum(sums) / workers
    rows = -(-parts // workers)
    return Traffic(
        (
            transfer("all-to-all", workers, round(NUMBER_BYTES * each * mean), buckets),
            transfer("all-gather", workers, NUMBER_BYTES * each, buckets),
        ),
        busiest=workers,
        per_step=1.0,
        hidden_steps=0,
        # Into a row, through the sum, together and back; of every part but the last, a row and sum.
        device_bytes=copied(parameters, 4.5 + 2.5 * (rows - 1)),
        # Who has most subtrees to send is waited for.
        crossing=(max(sums) + 1) / (mean + 1),
    )


@cache
def subtrees_of_workers(parts: int, workers: int) -> tuple[int, ...]:
    """How many subtrees each of the workers has to send."""
    if parts == workers:
        return (1,) * workers
    return tuple(len(subtrees(slice_of(parts, workers, rank), parts)) for rank in range(workers))


@cache
def rows_kept(parts: int, workers: int) -> int:
    """The most subtrees whose sums a worker keeps while it computes its next part."""
    if parts <= workers:
        return 0
    shares = (slice_of(parts, workers, rank) for rank in range(workers))
    return max(
        len(subtrees(range(share.start, until), parts)) for share in shares for until in share
    )
