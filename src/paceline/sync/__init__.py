"""Synchronization modes: how the replicas of a model agree. One file or folder of `modes` each.

`mode.py` says what a mode brings; planner, command line and docs enumerate the registry of modes
(`paceline.specs.SYNC_MODES`). The trainer calls a mode's hook (`hook.py`), which works on what each
worker holds of the weights and so composes with shards, tensor-parallel slices and pipeline stages.
It communicates through a `Transport`, which counts bytes, on the one thread of a `Lane`, in program
order. Importing a mode does not load torch; a test compares its declared traffic with real bytes.
"""
