"""The place of a PCI device in this machine: NUMA node, cores and network adapters, from sysfs."""

from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys")


@dataclass(frozen=True)
class Surroundings:
    """What is near a PCI device."""

    numa_node: int | None
    """None where the machine has one node, or hides it."""
    cores: frozenset[int]
    """Logical cores of its NUMA node; empty if that is unknown."""
    adapters: tuple[str, ...]
    """The nearest network adapters: of InfiniBand, or of Ethernet where there is none."""


def surroundings(address: str, sysfs: Path = SYSFS) -> Surroundings:
    """Return what is near the PCI device with this address (`0000:3b:00.0`)."""
    device = sysfs / "bus/pci/devices" / address
    node = _numa_node(device)
    cores: frozenset[int] = frozenset()
    if node is not None:
        cores = _cores(_text(device / "local_cpulist"))
    return Surroundings(node, cores, _nearest_adapters(device, node, sysfs))


def core_ranges(cores: frozenset[int]) -> str:
    """Return core numbers as Linux writes them: `0-7,16-23`."""
    firsts = sorted(core for core in cores if core - 1 not in cores)
    lasts = sorted(core for core in cores if core + 1 not in cores)
    pairs = zip(firsts, lasts, strict=True)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def _nearest_adapters(device: Path, node: int | None, sysfs: Path) -> tuple[str, ...]:
    """Return the adapters that share most of the path from the processor with the device.

    Among those that share no switch, the ones on the device's NUMA node are nearest.
    """
    own = device.resolve().parts
    nearness: dict[str, tuple[int, bool]] = {}
    for adapter in _adapters(sysfs):
        theirs = (adapter / "device").resolve()
        shared = next(
            (depth for depth, (a, b) in enumerate(zip(own, theirs.parts, strict=False)) if a != b),
            min(len(own), len(theirs.parts)),
        )
        nearness[adapter.name] = (shared, _numa_node(theirs) == node)
    best = max(nearness.values(), default=None)
    return tuple(sorted(name for name, near in nearness.items() if near == best))


def _adapters(sysfs: Path) -> list[Path]:
    """Return the network adapters on PCI; those of Ethernet only without InfiniBand."""
    for kind in ("infiniband", "net"):
        found = [each for each in (sysfs / "class" / kind).glob("*") if _is_on_pci(each)]
        if found:
            return found
    return []


def _is_on_pci(adapter: Path) -> bool:
    return (adapter / "device/numa_node").exists()


def _numa_node(device: Path) -> int | None:
    text = _text(device / "numa_node")
    return int(text) if text.isdigit() else None  # -1: unknown


def _cores(ranges: str) -> frozenset[int]:
    found: set[int] = set()
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # containers may hide it
        return ""
