"""Measurements and counts: clusters, models, dry runs and studies."""
