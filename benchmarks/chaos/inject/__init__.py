"""Injects a schedule's faults into a run, on this machine or on a testbed."""
