"""A training that survives lost workers: regroup, state transfer, checkpoints."""
