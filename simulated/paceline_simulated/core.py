"""The controls of the simulated devices: the functions of the built extension.

The first call loads it, and builds it before on a new machine (see `build`). From then on, torch
takes the simulated devices for this process's accelerator. Import `paceline_simulated.device` to
register them by name.
"""

from collections.abc import Callable
from datetime import timedelta
from enum import IntEnum
from functools import cache

import torch
import torch.distributed as dist

from paceline_simulated import build

_extension = cache(build.extension)

UNCORRECTABLE_ECC = 214
"""`cudaErrorECCUncorrectable`."""


class Poison(IntEnum):
    """When memory is overwritten with NaN."""

    NEVER = 0
    AT_REUSE = 1
    """When a freed block is given out again, as a GPU's next owner would."""
    AT_FREE = 2
    """At once; stricter than a GPU, and too strict for FSDP2."""


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor over the same bytes. It neither waits for the device nor owns memory."""
    found: torch.Tensor = _extension().alias(tensor)
    return found


def enqueue(device: int, kernel: Callable[[], object]) -> None:
    """Queue a Python function as a kernel on the device's current stream.

    An exception makes the device sick, as a failed kernel does.
    """
    _extension().enqueue(device, kernel)


def set_devices(count: int) -> None:
    """Set the number of devices of this process; before the first is used."""
    _extension().set_device_count(count)


def device_count() -> int:
    """Return the number of devices of this process."""
    return int(_extension().device_count())


def set_delay_us(microseconds: int, device: int = -1) -> None:
    """Make each kernel and copy of a device take this much longer; by default, of all devices."""
    _extension().set_delay_us(microseconds, device)


def set_limit(bytes_: int) -> None:
    """Set the memory of each device. What is in use already stays."""
    _extension().set_limit(bytes_)


def set_poison(mode: Poison | int) -> None:
    """Set when freed memory is overwritten."""
    _extension().set_poison(int(Poison(mode)))


def sicken(
    device: int, why: str = "uncorrectable ECC error encountered", code: int = UNCORRECTABLE_ECC
) -> None:
    """Make every call to the device raise `torch.AcceleratorError`, until `heal`."""
    _extension().sicken(device, code, why)


def heal(device: int) -> None:
    """Make a sick device well; a GPU needs a new process for that."""
    _extension().heal(device)


def notes() -> dict[str, int]:
    """Return how often the host waited, and what ran other than on a GPU, by `kind:what`."""
    counts: dict[str, int] = _extension().notes()
    return counts


def clear_notes() -> None:
    """Forget the notes."""
    _extension().clear_notes()


def set_wait_listener(listener: Callable[[str, str], str]) -> None:
    """Call `listener(kind, what)` at each wait; the text that it returns is raised as an error."""
    _extension().set_wait_listener(listener)


def operator_calls() -> int:
    """Return the number of operators that were queued or run so far."""
    return int(_extension().operator_calls())


def drain_all() -> None:
    """Wait for all devices, without counting it as a wait."""
    _extension().drain_all()


def halt_all(patience_ms: int) -> None:
    """Drop all queued work, and wait this long for kernels that run."""
    _extension().halt_all(patience_ms)


def in_bad_fork() -> bool:
    """Return whether this process was forked from one that had used a device."""
    return bool(_extension().in_bad_fork())


def default_generator(device: int) -> torch.Generator:
    """Return the device's default generator of random numbers."""
    found: torch.Generator = _extension().default_generator(device)
    return found


def collective_backend(
    rank: int, size: int, timeout: timedelta, collectives: object
) -> "dist.Backend":
    """Return a c10d backend that gives each collective to a method of `collectives`."""
    made: dist.Backend = _extension().CollectiveBackend(rank, size, timeout, collectives)
    return made


def queued_work(
    device: torch.device,
    outputs: list[torch.Tensor],
    kept: list[torch.Tensor],
    *,
    blocks_host: bool = False,
) -> "dist.Work":
    """Return the work that ends with what the current stream holds now.

    Its `wait` empties `kept`, which holds the collective's tensors until then.
    """
    made: dist.Work = _extension().queued_work(device, outputs, kept, blocks_host)
    return made
