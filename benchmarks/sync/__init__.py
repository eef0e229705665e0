"""Synchronization modes and compression: bytes, speed and loss."""
