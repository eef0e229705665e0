"""A run that has lost a node: what is left of its layout, and how long its steps take."""

from paceline.parallel.fitted_layout import fitted
from paceline.plan.calibration.calibrate import Fit
from paceline.plan.calibration.measured_runs import Ran, rows
from paceline.plan.search.best_layout import Best, Profiles
from paceline.plan.search.layout_estimate import estimates
from paceline.specs import Cluster
from paceline.specs.plans.answer import NodeShort


def node_short(best: Best, profiles: Profiles, cluster: Cluster, found: Fit) -> NodeShort | None:
    """Return the plan after the survivors of a lost node have regrouped; None for a single node.

    `cluster`: the nodes that were chosen.
    """
    if best.nodes == 1:
        return None
    chosen = best.estimate
    left = fitted(chosen.layout, chosen.layout.workers - cluster.devices_per_node)
    nodes = best.nodes - 1
    if left is None:
        return NodeShort(nodes=nodes)
    # The batch may not divide any more: a worker's largest part is in equal micro-batches.
    local = -(-chosen.batch // left.data_workers)
    micro_batch = -(-local // left.micro_batches(local))
    left = left.model_copy(update={"micro_batch": micro_batch})
    ran = Ran(
        profile=profiles[best.precision],
        layout=left,
        nodes=nodes,
        devices_per_node=cluster.devices_per_node,
        batch=chosen.batch,
        step_seconds=1.0,  # unused: nothing is fitted
        sync=chosen.sync,
    )
    (steps,) = rows([ran], cluster)
    (after,) = estimates(found, steps, best.precision)
    return NodeShort(
        nodes=nodes,
        layout=left,
        step_seconds=after.step_seconds,
        peak_bytes=after.peak_bytes.value,
        fits=after.fits,
    )
