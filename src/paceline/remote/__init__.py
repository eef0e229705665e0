"""Runs whose folder is in an object store, for machines that share no file system.

Each machine works in a copy of the run's folder on its own disk, as in any run's folder. One thread
or process per machine keeps the copy and the store alike; `places` decides where a run's files are.
"""
