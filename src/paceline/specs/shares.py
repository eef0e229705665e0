"""How a number of things is divided over workers."""


def slice_of(things: int, workers: int, rank: int) -> range:
    """The slice that belongs to a worker; sizes differ by one at the most."""
    size, more = divmod(things, workers)
    begin = rank * size + min(rank, more)
    return range(begin, begin + size + (rank < more))
