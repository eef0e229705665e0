"""Kinds of faults, and seeded schedules of them."""
