"""Readings from the NVIDIA GPUs of this node, through NVML.

Written against the documentation of nvidia-ml-py; never run on a real GPU.
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
    """One GPU, sampled about every second and summarized on request."""

    index: int
    name: str | None
    busy: Reading = _unknown
    memory_bytes: Reading = _unknown
    memory_total_bytes: int | None = None
    watts: Reading = _unknown
    counter: Counter | None = None
    """Its energy counter; without one, joules are the integral of its watts."""
    _busy: list[float] = field(default_factory=list, repr=False)
    _memory: list[float] = field(default_factory=list, repr=False)
    _watts: list[float] = field(default_factory=list, repr=False)
    _integral: Integral = field(default_factory=Integral, repr=False)

    def read(self, at_seconds: float) -> None:
        """Sample it once."""
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
        """Return the joules since the last call, or None if it reports neither joules nor watts."""
        if self.counter is not None:
            return self.counter.take()
        return self._integral.take() if self._watts else None

    def take(self) -> GpuUsage:
        """Return a summary of the samples since the last call."""
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
    """Return the first `count` GPUs that this process sees, one for each worker of the node."""
    nvml = opened_nvml()
    if nvml is None:
        return []
    return [_gpu(nvml, index, handle) for index, handle in enumerate(nvml.handles(count))]


def visible_devices(environment: str | None, present: int) -> Sequence[int | str]:
    """Return the indices or UUIDs in CUDA_VISIBLE_DEVICES; all devices if it is not set."""
    if environment is None:
        return range(present)
    names = [name.strip() for name in environment.split(",") if name.strip()]
    return [int(name) if name.isdigit() else name for name in names]


def opened_nvml() -> "Nvml | None":
    """Initialize NVML; return None without its package or without a working driver."""
    try:
        import pynvml  # noqa: PLC0415 -- optional

        pynvml.nvmlInit()
    except Exception:  # an ImportError, or one of NVML's own
        return None
    return Nvml(pynvml)


class Nvml:
    """NVML; a device may not support every query."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def handles(self, count: int) -> list[Any]:
        """Return the first `count` visible devices without MIG instances, which report no watts."""
        present = self.ask("nvmlDeviceGetCount") or 0
        visible = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), present)[:count]
        found = [
            self.ask(f"nvmlDeviceGetHandleBy{'Index' if isinstance(name, int) else 'UUID'}", name)
            for name in visible
            if not str(name).startswith("MIG")
        ]
        return [handle for handle in found if handle is not None]

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return the result of a query, or None if the device does not support it."""
        try:
            return getattr(self.module, function)(*arguments)
        except (AttributeError, self.module.NVMLError):
            return None


def _gpu(nvml: Nvml, index: int, handle: Any) -> Gpu:
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
    """Wrap a reading that worked before, so that a missing value raises an error."""

    def read() -> float:
        value = reading()
        if value is None:
            raise OSError("the GPU no longer answers")
        return value

    return read


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
