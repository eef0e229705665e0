"""Compressed gradients: bytes on the wire, and accuracy."""
