"""Profiler traces of workers: overlapped communication, and one timeline for all."""
