"""The cost of one step of a model, counted without hardware or timed on it."""
