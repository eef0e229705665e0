"""The state of every worker, kept in the memory of others: what is left after a loss without a
disk."""
