"""Joules of this machine, from the counters that it lets be read: processors, memory, GPUs.

A counter counts what its part of the machine draws, whoever makes it do so. What has none is not
counted here: fans, network interfaces, disks, what is lost in the power supply.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")
MICRO = 1e-6
MILLI = 1e-3


class Counter:
    """Joules that a part of the machine has drawn, from a number that grows and may wrap around.

    It has to be read before it wraps around twice: RAPL's 32 bits last for minutes, read here
    every few seconds.
    """

    def __init__(
        self, name: str, read: Callable[[], float], range_joules: float | None = None
    ) -> None:
        self.name = name
        self._read = read
        self._range = range_joules
        self._last = read()

    def take(self) -> float:
        """Joules since the last call, or since this was made."""
        before, self._last = self._last, self._read()
        if self._last >= before:
            return self._last - before
        # It wrapped around; without a range it begins at 0 again when its driver is loaded.
        return self._last - before + self._range if self._range else self._last


class Integral:
    """Joules of what only tells its watts: the area under the straight lines between readings."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._joules = 0.0

    def add(self, at_seconds: float, watts: float) -> None:
        """A reading; times only grow."""
        if self._last is not None:
            before_seconds, before_watts = self._last
            self._joules += (at_seconds - before_seconds) * (before_watts + watts) / 2
        self._last = at_seconds, watts

    def take(self) -> float:
        """Joules since the last call, up to the last reading."""
        taken, self._joules = self._joules, 0.0
        return taken


def processor_counters(powercap: Path = POWERCAP) -> list[Counter]:
    """Those of the processors' packages and of memory; none where nobody may read them.

    Since Linux 5.10 only root may, unless the site allows it or runs the daemon of Zeus.
    """
    return _kernel_counters(powercap) or _zeus_processor_counters()


def _kernel_counters(powercap: Path) -> list[Counter]:
    """RAPL as the kernel shows it, of Intel's and AMD's processors alike.

    `intel-rapl:0` is the first package, `intel-rapl:0:1` a part of it. Cores are in the package;
    memory, where it is counted, is not. `psys`, the whole machine on some laptops, has them again.
    """
    found = []
    for zone in sorted(powercap.glob("intel-rapl:*")):
        try:
            name = (zone / "name").read_text().strip()
            if name == "dram":
                name = f"dram-{zone.name.split(':')[1]}"
            if name.startswith(("package-", "dram-")):
                spread = int((zone / "max_energy_range_uj").read_text()) * MICRO
                found.append(Counter(name, _reader(zone / "energy_uj"), spread))
        except OSError:  # not for us to read
            return []
    return found


def _reader(file: Path) -> Callable[[], float]:
    return lambda: int(file.read_text()) * MICRO


def _zeus_processor_counters() -> list[Counter]:
    """Through the daemon of Zeus, where the site runs one: it reads the counters for all users."""
    if not any(name.startswith("ZEUSD_") for name in os.environ):
        return []
    try:
        from zeus.device import get_cpus  # noqa: PLC0415 -- optional, and slow to load

        found = []
        for index, cpu in enumerate(get_cpus().cpus):
            found.append(Counter(f"package-{index}", _zeus_reader(cpu, "cpu_mj")))
            if cpu.supports_get_dram_energy_consumption():
                found.append(Counter(f"dram-{index}", _zeus_reader(cpu, "dram_mj")))
    except Exception:  # whatever the daemon or its client says: then there are no counters
        return []
    return found


def _zeus_reader(cpu: Any, field: str) -> Callable[[], float]:
    return lambda: float(getattr(cpu.get_total_energy_consumption(), field)) * MILLI
