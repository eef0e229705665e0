"""Keeps a worker on the cores of its device's NUMA node."""

import os
from pathlib import Path

import torch

from paceline.cluster.pci import SYSFS, surroundings
from paceline.comm.device_kind import DeviceKind


def use_near_cores(kind: DeviceKind, device: torch.device, sysfs: Path = SYSFS) -> None:
    """Let this process's threads run on cores near its device, among those that it may use.

    Nothing changes if too few of these are near for the threads of the worker. Memory follows the
    threads: Linux takes a page from the node of the core that writes to it first.
    """
    address = kind.identity(device).pci_address
    if address is None:
        return
    allowed = os.sched_getaffinity(0)
    near = allowed & surroundings(address, sysfs).cores
    if len(near) < torch.get_num_threads() or near == allowed:
        return
    for thread in Path("/proc/self/task").iterdir():
        try:
            if os.sched_getaffinity(int(thread.name)) == allowed:  # else it has its own setting
                os.sched_setaffinity(int(thread.name), near)
        except ProcessLookupError:
            continue  # it has ended
