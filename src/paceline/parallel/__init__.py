"""How a model stands on the workers: whole, copied, sharded, sliced, or in stages, tried before it
trains."""
