"""Studies of scaling: one training on several numbers of workers, measured and explained."""
