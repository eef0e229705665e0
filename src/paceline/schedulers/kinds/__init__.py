"""The built-in schedulers, one file or folder each, with the scheduler as `SCHEDULER`."""
