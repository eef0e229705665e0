"""How a model lies on workers: replicas, shards, slices, stages; and the dry run."""
