"""From a local batch to the gradient of the mean over the global batch."""
