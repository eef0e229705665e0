"""What is believed of the planner's numbers on a cluster: guesses, a probe, runs."""

from collections.abc import Mapping

from paceline.plan.calibration.calibrate import LEARNED
from paceline.plan.cost.coefficients import GUESSES, Guess
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import Origin

PROBED = {
    "matmul_rate": Guess(1.0, 0.05, "measured", "of what a probe measured"),
    "memory_rate": Guess(1.0, 0.1, "measured", "of what a probe measured"),
    "exchange_rate": Guess(
        1.0, 0.1, "measured", "of a measured collective, what gradients in buckets reach"
    ),
}
"""Guesses that a probe replaces. Rates of links keep theirs: measured lines are held against it."""
FIRMER = {"inside_rate": 0.1, "between_rate": 0.1, "call_seconds": 0.2}
"""Spreads of those."""
OVERLAP_ON_CPUS = Guess(0.95, 0.1, "assumed", "of computing, what can hide communication")
HANDOVER_LAUNCHES, STEP_LAUNCHES = 250.0, 700.0
"""What a hand-over and a step cost the host on CPUs, with Gloo, in small operations."""
LAUNCH_SECONDS = 4e-6
"""Of such an operation on a CPU, where it was not measured."""


def _on_cpus(launch_seconds: float) -> dict[str, Guess]:
    """What differs where workers compute on CPUs and communicate by Gloo."""
    handover, step = (each * launch_seconds for each in (HANDOVER_LAUNCHES, STEP_LAUNCHES))
    return {
        "overlap": OVERLAP_ON_CPUS,
        "launch_seconds": Guess(
            launch_seconds, 0.2, "measured", "the host's time for one operation of eager PyTorch"
        ),
        "handover_seconds": Guess(
            handover, 0.5, "assumed", "Python's and Gloo's time at a transfer from stage to stage"
        ),
        "step_seconds": Guess(step, 0.7, "assumed", "of a step in which nothing else happens"),
    }


def guesses_for(cluster: Cluster) -> Mapping[str, Guess]:
    """What is believed before runs of this training are looked at."""
    found = dict(GUESSES)
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
            found[name] = Guess(fitted.value, fitted.spread, origin, before.why)
    return found
