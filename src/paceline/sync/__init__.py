"""Synchronization modes: how the replicas of a model agree. One file or folder of `modes` each.

`mode.py` defines the interface of a mode; planner, command line and docs list the registry of modes
(`paceline.specs.SYNC_MODES`). The trainer calls a mode's hook (`hook.py`), which works on each
worker's part of the weights and so composes with shards, tensor-parallel slices and stages.
It communicates through a `Transport`, which counts bytes, on the one thread of a `Lane`, in program
order. Importing a mode does not load torch; a test compares its declared traffic with real bytes.
"""
