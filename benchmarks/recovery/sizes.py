"""Workers and global batch of the training, under every launcher."""

WORKERS, BATCH = 4, 64
