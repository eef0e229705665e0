"""A stand-in for sysfs: PCI devices and network adapters of a machine that is not there."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MadeDevice:
    """A PCI device behind a switch, on a NUMA node."""

    address: str
    switch: str
    numa_node: int
    cores: str


def made_sysfs(
    folder: Path, devices: list[MadeDevice], adapters: dict[str, MadeDevice], kind: str
) -> Path:
    """Make the files that Linux has for these devices; `adapters` are of class `kind`."""
    for device in [*devices, *adapters.values()]:
        real = folder / f"devices/pci{device.numa_node:04x}" / device.switch / device.address
        real.mkdir(parents=True)
        (real / "numa_node").write_text(f"{device.numa_node}\n")
        (real / "local_cpulist").write_text(f"{device.cores}\n")
        _link(folder / "bus/pci/devices" / device.address, real)
    for name, device in adapters.items():
        _link(
            folder / "class" / kind / name / "device", folder / "bus/pci/devices" / device.address
        )
    return folder


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
