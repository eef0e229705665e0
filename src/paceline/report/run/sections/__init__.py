"""The built-in sections of a run's report, one file each."""
