"""What runs have shown: their steps as rows to fit to, and the numbers that they leave behind."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.plan.calibrate import Fit, Steps
from paceline.plan.engine import Engine
from paceline.plan.layouts import Layouts
from paceline.plan.numbers import GUESSES
from paceline.specs.cluster import Cluster, FittedNumber
from paceline.specs.layout import Layout
from paceline.specs.profile import Profile


@dataclass(frozen=True)
class Ran:
    """A run as the planner sees it."""

    profile: Profile
    layout: Layout
    nodes: int
    devices_per_node: int
    batch: int
    step_seconds: float
    """Median over the steps."""


def rows(runs: Sequence[Ran], cluster: Cluster) -> list[Steps]:
    """Each run's step, on as many of the cluster's nodes as it had."""
    return [
        Steps(
            profile=run.profile,
            cluster=cluster.model_copy(
                update={"nodes": run.nodes, "devices_per_node": run.devices_per_node}
            ),
            precision=run.layout.precision,
            engine=Engine.of_paceline(run.profile, cluster),
            layouts=Layouts.of([run.layout], micro_batch=-(-run.batch // run.layout.data_workers)),
            batch=np.array([float(run.batch)]),
            seconds=np.array([run.step_seconds]),
        )
        for run in runs
    ]


def fitted_numbers(found: Fit) -> dict[str, FittedNumber]:
    """Those that the runs have shown, for the cluster's file."""
    spreads = np.sqrt(np.diag(found.covariance))
    values = np.exp(found.numbers.logs)
    numbers = {
        name: FittedNumber(value=float(values[place]), spread=float(spreads[place]))
        for place, name in enumerate(GUESSES)
        if found.origins[place] == "measured"
    }
    if len(found.kinds) == 1 and "matmul_rate" in numbers:
        # One kind of device and precision: its own rate is the cluster's.
        rate = numbers["matmul_rate"]
        own = float(np.exp(next(iter(found.kinds.values()))))
        numbers["matmul_rate"] = rate.model_copy(update={"value": rate.value * own})
    return numbers
