"""The dry run: one step of chosen workers of a cluster of any size, played here without memory,
without peers, and watched."""
