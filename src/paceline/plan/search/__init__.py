"""The search: all layouts on every number of nodes, ranked."""
