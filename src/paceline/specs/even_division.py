"""Even division over workers."""


def slice_of(things: int, workers: int, rank: int) -> range:
    """Return the slice of a worker; sizes differ by at most one."""
    size, more = divmod(things, workers)
    begin = rank * size + min(rank, more)
    return range(begin, begin + size + (rank < more))
