"""Faults put into real runs by a seeded schedule, and a separate checker of what came of them."""
