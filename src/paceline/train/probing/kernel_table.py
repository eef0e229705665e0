"""The table of a device's kernels: from the user's cache, or measured by all workers at once."""

import datetime
from collections.abc import Callable

import torch

from paceline.cluster.kernels.kernel_files import cached, keep
from paceline.comm.device_kind import device_kind
from paceline.comm.groups import Groups
from paceline.specs.measurements.kernels import KernelSource, KernelTable
from paceline.train.probing.collective_timing import shared
from paceline.train.probing.kernel_grids import kernel_cases, kernel_grids

CPU_SECONDS, ACCELERATOR_SECONDS = 10.0, 20.0
"""Default time to measure kernels."""


def kernel_table(
    groups: Groups, budget_seconds: float | None, advance: Callable[[], None]
) -> tuple[KernelTable | None, bool]:
    """Return the kernels of worker 0's device, and whether they come from its cache.

    Without a budget, cached ones count; with one, they are measured again; 0: neither. All workers
    call this. They measure at the same time, so that neighbors are busy as in training.
    """
    placement, device = groups.placement, groups.device
    if budget_seconds == 0:
        return None, False
    source = KernelSource(
        device=device_kind().title(device),
        versions=(("torch", torch.__version__), *sorted(device_kind().versions().items())),
        neighbors=placement.local_workers,
    )
    if budget_seconds is None:
        known = cached(source) if placement.rank == 0 else None
        if shared(groups, float(known is not None))[0] > 0:
            return known, True
        budget_seconds = CPU_SECONDS if device.type == "cpu" else ACCELERATOR_SECONDS
    memory = device_kind().memory_bytes(device, placement)
    grids = kernel_grids(kernel_cases(device), device, memory, budget_seconds, advance)
    table = KernelTable(
        source=source, measured_on=datetime.date.today().isoformat(), grids=tuple(grids)
    )
    if placement.rank or not table.grids:
        return None, False
    keep(table)
    return table, False
