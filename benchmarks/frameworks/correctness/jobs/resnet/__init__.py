"""Batch norm, an average of the weights, and validation."""
