"""The module `torch.sim`: what torch's own code and users of `torch.cuda` ask a device for."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple

import torch

from paceline_simulated import core

DeviceLike = torch.device | int | str | None

_PCI_DOMAIN = 0xFFFF
"""No machine has it: these addresses are made up."""

_initialized = True
"""Without it, `torch.utils.checkpoint` does not restore this device's random numbers."""


class DeviceProperties(NamedTuple):
    """What `get_device_properties` returns."""

    name: str
    total_memory: int
    multi_processor_count: int
    uuid: str
    pci_domain_id: int
    pci_bus_id: int
    pci_device_id: int = 0


class device:
    """Make a device the current one inside a `with`."""

    def __init__(self, device: DeviceLike) -> None:
        self._index = _index(device)
        self._before = self._index

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self._index)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        set_device(self._before)


def Stream(device: DeviceLike = None, priority: int = 0, **options: Any) -> torch.Stream:
    """Return one of the device's 32 streams of this priority, in turn."""
    return torch.Stream(torch.device("sim", _index(device)), priority=priority, **options)


def Event(enable_timing: bool = False, **options: Any) -> torch.Event:
    """Return an event that is not recorded yet."""
    return torch.Event("sim", enable_timing=enable_timing, **options)


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """Make a stream the current one inside a `with`; None changes nothing."""
    if stream is None:
        yield
        return
    before = current_stream(stream.device)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)


def is_available() -> bool:
    """Return True: this module exists only where the device does."""
    return True


def is_initialized() -> bool:
    """Return True: there is nothing to start."""
    return True


def _lazy_init() -> None:
    """Do nothing; torch calls it before it uses a device."""


def _is_in_bad_fork() -> bool:
    return core.in_bad_fork()


def device_count() -> int:
    """Return the number of devices. `torch.accelerator.device_count` asks this function."""
    return core.device_count()


def current_device() -> int:
    """Return the index of the current device."""
    return torch.accelerator.current_device_index()


def set_device(device: DeviceLike) -> None:
    """Make a device the current one."""
    torch.accelerator.set_device_index(_index(device))


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """Return the current stream of a device."""
    return torch.accelerator.current_stream(_index(device))


def set_stream(stream: torch.Stream) -> None:
    """Make a stream the current one of its device."""
    torch.accelerator.set_stream(stream)


def synchronize(device: DeviceLike = None) -> None:
    """Wait for all streams of a device."""
    torch.accelerator.synchronize(_index(device))


def get_device_name(device: DeviceLike = None) -> str:
    """Return a device's name."""
    return f"simulated accelerator {_index(device)}"


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return name, memory and number of multiprocessors, and a made-up UUID and PCI address."""
    index = _index(device)
    memory_bytes = mem_get_info(device)[1]
    return DeviceProperties(
        get_device_name(device), memory_bytes, 1, f"SIM-{index}", _PCI_DOMAIN, index + 1
    )


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    core.default_generator(current_device()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed all devices' generators; `torch.manual_seed` calls it."""
    for index in range(device_count()):
        core.default_generator(index).manual_seed(seed)


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    """Return the state of a device's generator, a CPU tensor."""
    return core.default_generator(_index(device)).get_state()


def set_rng_state(state: torch.Tensor, device: DeviceLike = None) -> None:
    """Set the state of a device's generator."""
    core.default_generator(_index(device)).set_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that `torch.autocast` accepts for this device."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    """Return True."""
    return True


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Return the allocator's counters."""
    return torch.accelerator.memory_stats(_index(device))


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes in tensors."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes in tensors so far."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes in tensors and in the cache."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the most bytes in tensors and in the cache so far."""
    return torch.accelerator.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Count peaks from now."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return free and total bytes."""
    return torch.accelerator.get_memory_info(_index(device))


def empty_cache() -> None:
    """Give cached blocks of all devices back."""
    torch.accelerator.empty_cache()


def _index(device: DeviceLike) -> int:
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return current_device() if index is None else index
