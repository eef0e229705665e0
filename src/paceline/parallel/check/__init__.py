"""The check of a training in one process: what would differ or fail on several workers."""
