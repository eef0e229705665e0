"""Weights without memory until a worker needs them: models larger than one device."""
