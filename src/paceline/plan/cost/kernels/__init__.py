"""Time of matrix products and attention: by formula, and as measured."""
