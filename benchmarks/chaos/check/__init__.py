"""Whether a run with faults kept what is promised.

Reads the history, the run's folder and /proc, and shares no code with what put the faults in.
"""
