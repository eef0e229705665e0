"""Notebooks, run by a kernel of their own."""
