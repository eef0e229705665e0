"""Check the invariants of a run with faults.

Reads the history, the run's folder and /proc, and shares no code with what put the faults in.
"""
