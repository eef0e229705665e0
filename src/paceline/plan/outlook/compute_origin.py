"""How much of a plan's compute time was measured, and how much is computed."""

import numpy as np

from paceline.plan.calibration.calibrate import Fit
from paceline.plan.search.best_layout import Best
from paceline.specs.measurements.kernels import KernelTable
from paceline.specs.plans.answer import ComputeOrigin


def compute_origin(best: Best, found: Fit) -> ComputeOrigin:
    """Return the origin of the chosen layout's compute time, over all layers of the model."""
    steps = best.found.steps.take(np.array([0]))
    model = found.model(steps)
    total = kernels = blocks = 0.0
    for layer in steps.profile.layers:
        passes = model.compute.passes(layer, steps.layouts)
        own = layer.count * float((passes.forward + passes.backward)[0])
        total += own
        if layer.timing is not None:
            blocks += own
            continue
        device, measured = model.compute.from_kernels(layer, steps.layouts)
        kernels += own * float(measured[0] / device[0]) if device[0] else 0.0
    table = steps.cluster.kernels
    said = _source(table) if table is not None and kernels else ""
    return ComputeOrigin(
        kernels=kernels / total if total else 0.0,
        blocks=blocks / total if total else 0.0,
        source=said,
    )


def _source(table: KernelTable) -> str:
    """Return what a table was measured with, in words."""
    source = table.source
    versions = ", ".join(f"{name} {version}" for name, version in source.versions)
    return f"{source.device}, {versions}, {table.measured_on}"
