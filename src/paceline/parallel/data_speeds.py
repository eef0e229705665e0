"""The speed of each data-parallel rank, from the speeds in a plan."""

import math

from paceline.specs import Layout, PacelineError, Placement


def speeds_of_data_workers(placement: Placement, layout: Layout) -> tuple[float, ...] | None:
    """Convert a plan's speeds per node or per worker to one per data-parallel rank.

    Workers that hold one replica together are as fast as the slowest of them.
    """
    speeds = layout.speeds
    if speeds is None:
        return None
    if placement.roster is not None:
        return None  # the plan's speeds describe workers before the regroup
    if len(speeds) == placement.nodes:
        speeds = tuple(speed for speed in speeds for _ in range(placement.local_workers))
    if len(speeds) != placement.workers:
        raise PacelineError(
            f"the plan has {len(speeds)} speeds, but the run has {placement.nodes} nodes and"
            f" {placement.workers} workers",
            fix="give one speed per node or one per worker, or leave speeds out",
        )
    slowest = [math.inf] * layout.data_workers
    for rank, speed in enumerate(speeds):
        part = layout.data_rank(rank)
        slowest[part] = min(slowest[part], speed)
    return tuple(slowest)
