"""Which sample goes where, and getting it there.

The order of the samples is a function of (seed, epoch, position), a global batch is a range of
positions, and a worker's share is a slice of it; so the samples of every step are the same on any
number of workers.
"""
