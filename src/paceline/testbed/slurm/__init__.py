"""The testbed's Slurm: its configuration, its daemons on the head, and its accounting."""
