"""Measuring a cluster: what each worker of a probe runs, instead of a training."""
