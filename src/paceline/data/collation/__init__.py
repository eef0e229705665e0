"""From samples to a batch: how it is collated, counted, cut and split."""
