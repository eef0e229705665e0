"""What the GPUs of this node tell of themselves: NVIDIA's through NVML, others through Zeus.

Written against the documentation of NVML (nvidia-ml-py) and Zeus; no GPU was at hand to try it.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.observe.usage.energy_counters import MILLI, Counter, Integral
from paceline.specs import GpuUsage

Reading = Callable[[], float | None]


def _unknown() -> None:
    return None


@dataclass
class Gpu:
    """One GPU, read about every second and summed up when asked."""

    index: int
    name: str | None
    busy: Reading = _unknown
    memory_bytes: Reading = _unknown
    memory_total_bytes: int | None = None
    watts: Reading = _unknown
    counter: Counter | None = None
    """Of its joules; without one they are the integral of its watts."""
    _busy: list[float] = field(default_factory=list, repr=False)
    _memory: list[float] = field(default_factory=list, repr=False)
    _watts: list[float] = field(default_factory=list, repr=False)
    _integral: Integral = field(default_factory=Integral, repr=False)

    def read(self, at_seconds: float) -> None:
        """Look at it once."""
        for kept, reading in (
            (self._busy, self.busy),
            (self._memory, self.memory_bytes),
            (self._watts, self.watts),
        ):
            value = reading()
            if value is not None:
                kept.append(value)
                if kept is self._watts:
                    self._integral.add(at_seconds, value)

    def take_joules(self) -> float | None:
        """Since the last call; unknown where it tells neither joules nor watts."""
        if self.counter is not None:
            return self.counter.take()
        return self._integral.take() if self._watts else None

    def take(self) -> GpuUsage:
        """What was seen since the last call."""
        busy, memory, watts = self._busy, self._memory, self._watts
        self._busy, self._memory, self._watts = [], [], []
        return GpuUsage(
            index=self.index,
            name=self.name,
            busy=_mean(busy),
            memory_bytes=int(max(memory)) if memory else None,
            memory_total_bytes=self.memory_total_bytes,
            watts=_mean(watts),
        )


def gpus_of_node(count: int) -> list[Gpu]:
    """The first `count` GPUs that this process sees, one for each worker of the node."""
    return _nvidia_gpus(count) or _zeus_gpus(count)


def visible_devices(environment: str | None, present: int) -> Sequence[int | str]:
    """What CUDA_VISIBLE_DEVICES names, by number or identifier; all where it is not set."""
    if environment is None:
        return range(present)
    names = [name.strip() for name in environment.split(",") if name.strip()]
    return [int(name) if name.isdigit() else name for name in names]


def opened_nvml() -> "Nvml | None":
    """NVML; nothing where there is no package, no driver, or one that does not answer."""
    try:
        import pynvml  # noqa: PLC0415 -- optional

        pynvml.nvmlInit()
    except Exception:  # an ImportError, or one of NVML's own
        return None
    return Nvml(pynvml)


def _nvidia_gpus(count: int) -> list[Gpu]:
    nvml = opened_nvml()
    if nvml is None:
        return []
    return [_nvidia_gpu(nvml, index, handle) for index, handle in enumerate(nvml.handles(count))]


class Nvml:
    """NVML, whose every question may be one that a device does not answer."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def handles(self, count: int) -> list[Any]:
        """Of the first `count` visible devices; MIG slices, which tell no watts, are left out."""
        present = self.ask("nvmlDeviceGetCount") or 0
        visible = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), present)[:count]
        found = [
            self.ask(f"nvmlDeviceGetHandleBy{'Index' if isinstance(name, int) else 'UUID'}", name)
            for name in visible
            if not str(name).startswith("MIG")
        ]
        return [handle for handle in found if handle is not None]

    def ask(self, function: str, *arguments: Any) -> Any:
        """The answer, or nothing where the device has none."""
        try:
            return getattr(self.module, function)(*arguments)
        except (AttributeError, self.module.NVMLError):
            return None


def _nvidia_gpu(nvml: Nvml, index: int, handle: Any) -> Gpu:
    def number(function: str, scale: float, part: str | None = None) -> Reading:
        def read() -> float | None:
            answer = nvml.ask(function, handle)
            if answer is None:
                return None
            return float(answer if part is None else getattr(answer, part)) * scale

        return read

    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    joules = number("nvmlDeviceGetTotalEnergyConsumption", MILLI)
    return Gpu(
        index=index,
        name=nvml.ask("nvmlDeviceGetName", handle),
        busy=number("nvmlDeviceGetUtilizationRates", 0.01, "gpu"),
        memory_bytes=number("nvmlDeviceGetMemoryInfo", 1, "used"),
        memory_total_bytes=None if memory is None else int(memory.total),
        watts=number("nvmlDeviceGetPowerUsage", MILLI),
        counter=None if joules() is None else Counter(f"gpu-{index}", _known(joules)),
    )


def _known(reading: Reading) -> Callable[[], float]:
    """A reading that was known once, and whose silence is an error."""

    def read() -> float:
        value = reading()
        if value is None:
            raise OSError("the GPU no longer answers")
        return value

    return read


def _zeus_gpus(count: int) -> list[Gpu]:
    """Joules and watts of AMD's GPUs, for which Zeus asks ROCm."""
    try:
        from zeus.device import get_gpus  # noqa: PLC0415 -- optional, and slow to load

        return [_zeus_gpu(index, gpu) for index, gpu in enumerate(get_gpus().gpus[:count])]
    except Exception:  # not installed, no such GPU, or a library that does not answer
        return []


def _zeus_gpu(index: int, gpu: Any) -> Gpu:
    counts = gpu.supports_get_total_energy_consumption()
    return Gpu(
        index=index,
        name=gpu.get_name(),
        watts=lambda: float(gpu.get_instant_power_usage()) * MILLI,
        counter=Counter(f"gpu-{index}", lambda: float(gpu.get_total_energy_consumption()) * MILLI)
        if counts
        else None,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
