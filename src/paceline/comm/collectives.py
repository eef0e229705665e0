"""Collectives of single tensors, by the names that the installed torch prefers."""

import torch.distributed as dist

# New names since torch 2.13, which warns about the old ones.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
