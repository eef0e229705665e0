"""Fits the planner's coefficients to measured steps."""
