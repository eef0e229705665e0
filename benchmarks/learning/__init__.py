"""Whether a larger batch with the advised settings learns as well."""
