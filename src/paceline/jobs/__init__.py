"""Runs from request to end: train here, submit, resume, probe."""
