"""Measured runs as rows to fit to, and the fitted coefficients in the cluster's file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paceline.plan.calibration.calibrate import Fit, Steps
from paceline.plan.cost.coefficients import PRIORS
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.specs.measurements.cluster import Cluster, FittedNumber
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.sync import SyncSettings, default_sync

MARK = "# fitted to runs by paceline plan --calibrate; remove what follows to forget it"


@dataclass(frozen=True)
class Ran:
    """A finished run: its layout and measured step time."""

    profile: Profile
    layout: Layout
    nodes: int
    devices_per_node: int
    batch: int
    step_seconds: float
    """Typical step time; the mean, if not all steps communicate."""
    sync: SyncSettings = field(default_factory=default_sync)


def rows(runs: Sequence[Ran], cluster: Cluster) -> list[Steps]:
    """Return each run's step as a row, on the number of nodes that it had."""
    return [
        Steps(
            profile=run.profile,
            cluster=cluster.model_copy(
                update={"nodes": run.nodes, "devices_per_node": run.devices_per_node}
            ),
            precision=run.layout.precision,
            engine=PACELINE.engine(run.profile, cluster, run.layout.precision, run.sync),
            layouts=Layouts.of([run.layout], run.batch),
            batch=np.array([float(run.batch)]),
            seconds=np.array([run.step_seconds]),
        )
        for run in runs
    ]


def fitted_numbers(found: Fit) -> dict[str, FittedNumber]:
    """Return all fitted coefficients, for the cluster's file.

    Also those that the runs did not determine: they moved together with the others, so that leaving
    them out would spoil the fit of the others.
    """
    logs, covariance = found.numbers.logs, found.covariance
    if len(found.kinds) == 1:  # with a single kind, the cluster's rate is that kind's
        kind = len(PRIORS)
        mix = np.eye(kind + 1)[:kind]
        mix[0, kind] = 1.0
        logs = mix @ np.append(logs, list(found.kinds.values()))
        covariance = mix @ covariance @ mix.T
    spreads = np.sqrt(np.diag(covariance))
    return {
        name: FittedNumber(value=float(np.exp(logs[place])), spread=float(spreads[place]))
        for place, name in enumerate(PRIORS)
    }


def write_numbers(file: Path, numbers: dict[str, FittedNumber]) -> None:
    """Write the coefficients at the end of the cluster's file; keep the user's part as it is."""
    before = file.read_text().partition(MARK)[0].rstrip()
    lines = [
        f"{name} = {{ value = {each.value:.6g}, spread = {each.spread:.3g} }}"
        for name, each in numbers.items()
    ]
    file.write_text("\n".join([before, "", MARK, "[numbers]", *lines, ""]))
