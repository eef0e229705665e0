"""How workers agree: one file per mode, and what the modes are made of.

A mode is led by the trainer (`mode.py`), works on what each worker holds of the weights, and so
composes with shards, slices and stages: those who agree are the replicas. What it sends goes
through a `Transport`, which counts bytes, on the one thread of a `Lane`, in program order.
`costs.py` says what each mode sends, without torch, for the planner; a test holds the two together.
"""
