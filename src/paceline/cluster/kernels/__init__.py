"""Measured kernels of a device: their files, their cache, and times of sizes between them."""
