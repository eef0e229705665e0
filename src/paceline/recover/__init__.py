"""What survives a failure: checkpoints, written so that none is ever torn or silently wrong."""
