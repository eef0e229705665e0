"""Sequences of different lengths, padded."""
