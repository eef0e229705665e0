"""Energy of this machine in joules, from readable counters of processors, memory and GPUs.

A counter covers its part of the machine, for all processes. Parts without a counter are missing:
fans, network interfaces, disks and losses in the power supply.
"""

from collections.abc import Callable
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
MICRO = 1e-6
MILLI = 1e-3


class Counter:
    """Joules that a part of the machine has drawn, from a counter that grows and may wrap around.

    It must be read before it wraps around twice: RAPL's 32 bits last for minutes, and the sampler
    reads every few seconds.
    """

    def __init__(
        self, name: str, read: Callable[[], float], range_joules: float | None = None
    ) -> None:
        self.name = name
        self._read = read
        self._range = range_joules
        self._last = read()

    def take(self) -> float:
        """Return the joules since the last call, or since creation."""
        before, self._last = self._last, self._read()
        if self._last >= before:
            return self._last - before
        # It wrapped around. A counter without a range restarts at 0 when its driver is loaded.
        return self._last - before + self._range if self._range else self._last


class Integral:
    """Joules of a device that only reports watts: readings integrated by the trapezoidal rule."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._joules = 0.0

    def add(self, at_seconds: float, watts: float) -> None:
        """Add a reading; times must not decrease."""
        if self._last is not None:
            before_seconds, before_watts = self._last
            self._joules += (at_seconds - before_seconds) * (before_watts + watts) / 2
        self._last = at_seconds, watts

    def take(self) -> float:
        """Return the joules since the last call, up to the last reading."""
        taken, self._joules = self._joules, 0.0
        return taken


def processor_counters(powercap: Path = POWERCAP) -> list[Counter]:
    """Return the kernel's RAPL counters of processors and memory; raise an OSError if there are
    any that cannot be read.

    They exist for Intel and AMD; since Linux 5.10 only root may read them, unless the site allows
    it. `intel-rapl:0` is the first package, `intel-rapl:0:1` a part of it. The package includes
    cores but not memory, which may have a counter. `psys`, the whole machine on some laptops, would
    count both again.
    """
    found = []
    for zone in sorted(powercap.glob("intel-rapl:*")):
        name = (zone / "name").read_text().strip()
        if name == "dram":
            name = f"dram-{zone.name.split(':')[1]}"
        if name.startswith(("package-", "dram-")):
            spread = int((zone / "max_energy_range_uj").read_text()) * MICRO
            found.append(Counter(name, _reader(zone / "energy_uj"), spread))
    return found


def _reader(file: Path) -> Callable[[], float]:
    return lambda: int(file.read_text()) * MICRO
