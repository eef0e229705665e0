"""Two optimizers that take turns."""
