"""What checkpoints cost a run, and how fast they are written and read."""
