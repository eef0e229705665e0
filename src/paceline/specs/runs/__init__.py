"""A run: its job, its folder, its workers and the events that it records."""
