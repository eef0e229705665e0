"""A plan: layout, synchronization, checkpoints, faults, and what it is expected to take."""
