"""The planner's coefficients on a cluster before runs: priors, updated by a probe and by runs."""

from collections.abc import Mapping

from paceline.plan.calibration.calibrate import (
    CATALOG_WIDTH,
    LEARNED,
    NINE_OF_TEN,
    Fit,
    from_priors,
)
from paceline.plan.cost.coefficients import PRIORS, Prior
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import Origin

PROBED = {
    "matmul_rate": Prior(1.0, 0.05, "measured", "fraction of the probed rate"),
    "memory_rate": Prior(1.0, 0.1, "measured", "fraction of the probed rate"),
    "bucket_rate": Prior(
        1.0, 0.1, "measured", "fraction of a measured collective's rate that gradient buckets reach"
    ),
}
"""Priors that a probe replaces. Link rates keep theirs: corrections are relative to them."""
FIRMER = {"inside_rate": 0.1, "between_rate": 0.1, "call_seconds": 0.2}
"""Spreads of link coefficients after a probe."""
OVERLAP_ON_CPUS = Prior(
    0.95, 0.1, "assumed", "fraction of computation that can overlap with communication"
)
HANDOVER_LAUNCHES, STEP_LAUNCHES = 250.0, 700.0
"""Host cost of a stage transfer and of a step on CPUs with Gloo, in small operations."""
LAUNCH_SECONDS = 4e-6
"""Duration of such an operation on a CPU, if not measured."""


def _on_cpus(launch_seconds: float) -> dict[str, Prior]:
    """Return the priors that differ on CPUs with Gloo."""
    handover, step = (each * launch_seconds for each in (HANDOVER_LAUNCHES, STEP_LAUNCHES))
    return {
        "overlap": OVERLAP_ON_CPUS,
        "launch_seconds": Prior(
            launch_seconds, 0.2, "measured", "host time of one eager PyTorch operation"
        ),
        "handover_seconds": Prior(
            handover,
            0.5,
            "assumed",
            "time of Python and Gloo for a transfer between pipeline stages",
        ),
        "step_seconds": Prior(step, 0.7, "assumed", "overhead of a step"),
    }


def priors_for(cluster: Cluster) -> Mapping[str, Prior]:
    """Return the priors for a cluster, before runs are fitted."""
    found = dict(PRIORS)
    if cluster.device.kind == "cpu":
        found |= _on_cpus(cluster.device.launch_seconds or LAUNCH_SECONDS)
    if cluster.device.matmuls:
        found |= PROBED
    if cluster.collectives:
        for name, spread in FIRMER.items():
            found[name] = found[name]._replace(spread=spread, origin="measured")
    for name, fitted in cluster.numbers.items():
        if name in found:
            before = found[name]
            shown = fitted.spread < LEARNED * before.spread
            origin: Origin = "measured" if shown else before.origin
            found[name] = Prior(fitted.value, fitted.spread, origin, before.why)
    return found


def unfitted(cluster: Cluster) -> Fit:
    """Return a cluster's coefficients before runs are fitted.

    After a probe, intervals have the width of a normal distribution: 37 of 40 configurations were
    inside on the testbed (docs/planning.md).
    """
    probed = bool(cluster.device.matmuls)
    return from_priors(priors_for(cluster), NINE_OF_TEN if probed else CATALOG_WIDTH)
