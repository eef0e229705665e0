"""Layers that several workers compute together: which ones, how they are cut, and the user's code
in between, which meets whole shapes."""
