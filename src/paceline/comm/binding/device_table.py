"""The devices that workers of this machine would use, with what is near them."""

from dataclasses import dataclass
from pathlib import Path

import torch

from paceline.cluster.pci import SYSFS, core_ranges, surroundings
from paceline.cluster.visible_devices import mig_instances
from paceline.comm.device_kind import device_kind

COLUMNS = ("worker", "device", "name", "UUID", "PCI", "NUMA node", "cores", "nearest adapter")
"""The titles of a row's cells."""


@dataclass(frozen=True)
class DeviceRow:
    """One worker's device; what is unknown is None."""

    worker: int
    device: str
    name: str
    uuid: str | None
    pci_address: str | None
    numa_node: int | None
    cores: str | None
    """The cores of its NUMA node, as `0-7,16-23`."""
    adapters: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row's values in words, in the order of `COLUMNS`."""
        known = (self.uuid, self.pci_address, self.numa_node, self.cores)
        words = ("-" if each is None else str(each) for each in known)
        return (str(self.worker), self.device, self.name, *words, ", ".join(self.adapters) or "-")


def rows(sysfs: Path = SYSFS) -> list[DeviceRow]:
    """Return a row for each device, by the worker that uses it; empty on a CPU.

    The first call starts the devices' runtime in this process. CUDA shows a process only one MIG
    instance, so of these only the UUIDs are known.
    """
    kind = device_kind()
    if not kind.one_per_worker:
        return []
    if instances := mig_instances():
        return [
            DeviceRow(worker, "cuda:0", "MIG instance", uuid, None, None, None, ())
            for worker, uuid in enumerate(instances)
        ]
    return [
        row(index, torch.device(kind.torch_type, index), sysfs) for index in range(kind.count())
    ]


def row(worker: int, device: torch.device, sysfs: Path = SYSFS) -> DeviceRow:
    """Return a worker's row."""
    kind = device_kind()
    identity = kind.identity(device)
    near = surroundings(identity.pci_address, sysfs) if identity.pci_address else None
    return DeviceRow(
        worker=worker,
        device=str(device),
        name=kind.title(device),
        uuid=identity.uuid,
        pci_address=identity.pci_address,
        numa_node=near.numa_node if near else None,
        cores=core_ranges(near.cores) or None if near else None,
        adapters=near.adapters if near else (),
    )
