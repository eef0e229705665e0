"""Checkpoints: written so that none is ever torn or silently wrong."""
