"""Peak memory per worker and layout: the dry run's prediction against a measurement."""
