"""Build a run's state from the event files in its folder."""
