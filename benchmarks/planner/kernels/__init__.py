"""Measured kernels beside the formulas that they replace, on this machine's device."""
