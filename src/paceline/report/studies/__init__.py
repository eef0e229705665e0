"""Pages of scaling studies and of quality studies."""
