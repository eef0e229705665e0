"""A run that faults are injected into: its processes, its history, its isolation."""
