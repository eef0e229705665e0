"""All-reduce in three calls: inside a node, across nodes, inside a node.

Each device of a node gets the node's sum of one part, the devices with the same part sum it across
nodes, and each node puts the parts together. Across nodes, a device sends the bytes of its part
alone, and latencies count by nodes and not by devices. `cluster/collectives/hierarchical.py` says
what it costs. NCCL may do as much inside one call; Gloo does not, and its reduce-scatter is an
all-reduce, so that nothing is gained by this on CPUs.
"""

import torch
import torch.distributed as dist

# The second names are those before torch 2.13.
_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def hierarchical_all_reduce(
    values: torch.Tensor, inside: "dist.ProcessGroup", across: "dist.ProcessGroup"
) -> torch.Tensor:
    """The sum over all workers, in place.

    `inside`: the workers of this node, as many in every node; `across`: those of all nodes that
    have the rank in their node that this one has.
    """
    row = values.view(-1)
    missing = -len(row) % dist.get_world_size(inside)
    # All parts are equal in size.
    whole = torch.nn.functional.pad(row, (0, missing)) if missing else row
    part = whole.new_empty(len(whole) // dist.get_world_size(inside))
    _scatter(part, whole, group=inside)
    dist.all_reduce(part, group=across)
    _gather(whole, part, group=inside)
    if missing:
        row.copy_(whole[: len(row)])
    return values
