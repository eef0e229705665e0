"""This machine's device as `paceline probe` measures it, and what is predicted from that."""

import datetime
from collections.abc import Sequence
from statistics import mean, median
from typing import NamedTuple

import torch
from rich.console import Console

from benchmarks.common.output import table
from paceline.cluster.probe.assemble import cluster_of
from paceline.specs import Placement
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.kernels import KernelSource, KernelTable
from paceline.specs.measurements.probe import Probed
from paceline.specs.measurements.profile import TrainingPrecision
from paceline.train.probing.device_measurement import measured
from paceline.train.probing.kernel_grids import kernel_cases, kernel_grids

PRECISIONS: tuple[TrainingPrecision, ...] = ("fp32", "bf16")


class Row(NamedTuple):
    """Measured seconds, and the predictions."""

    kind: str
    """Rows of a kind are scored together."""
    what: str
    precision: str
    measured: float
    formula: float
    kernels: float
    null: float


def probed(device: torch.device, seconds: float) -> tuple[Cluster, Cluster]:
    """Return this device without and with its kernels."""
    worker = measured(Placement(), device)
    found = Probed(nodes=1, devices_per_node=1, backend="none", interface="none", workers=(worker,))
    plain = cluster_of(found, datetime.date.today())
    grids = kernel_grids(kernel_cases(device), device, worker.memory_bytes, seconds)
    source = KernelSource(device=worker.device, versions=(), neighbors=1)
    kernels = KernelTable(source=source, measured_on="", grids=tuple(grids))
    return plain, plain.model_copy(update={"kernels": kernels})


def show(rows: Sequence[Row]) -> None:
    """Print each row with its errors, and the errors of each kind."""
    title = "Predicted beside measured times"
    shown = table(title, "", "", "measured ms", "formula", "kernels", "null", texts=2)
    for row in rows:
        errors = (f"{each / row.measured - 1:+.0%}" for each in row[4:])
        shown.add_row(row.what, row.precision, f"{1e3 * row.measured:.2f}", *errors)
    for kind in dict.fromkeys(each.kind for each in rows):
        for precision in PRECISIONS:
            mine = [
                [abs(each / row.measured - 1) for each in row[4:]]
                for row in rows
                if (row.kind, row.precision) == (kind, precision)
            ]
            for how, of in (("mean", mean), ("median", median)):
                columns = (f"{of(each):.1%}" for each in zip(*mine, strict=True))
                shown.add_row(f"{kind}: {how} error", precision, str(len(mine)), *columns)
    Console(width=110).print(shown)
