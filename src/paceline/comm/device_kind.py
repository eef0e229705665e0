"""The protocol of a kind of device, and the choice of this process's kind.

The only rooms that know accelerators are the files of `comm/devices`. CUDA, ROCm (which torch calls
cuda) and XPU follow torch's documentation and have not been run on hardware yet; the tests run on
CPU.
"""

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
import torch.distributed as dist

from paceline.cluster.visible_devices import KIND_VARIABLE
from paceline.specs import PacelineError, Placement
from paceline.specs.registry import Registry


@dataclass(frozen=True)
class DeviceIdentity:
    """What tells a device from others of its machine; None where torch does not say it."""

    uuid: str | None = None
    pci_address: str | None = None
    """As in sysfs: `0000:3b:00.0`."""


class DeviceKind(ABC):
    """One kind of device.

    To add one, write a file in `comm/devices` with an instance named `DEVICE`, or a package with an
    entry point in the group `paceline.devices`. A process uses the kind that is named like torch's
    accelerator, or the one that `PACELINE_DEVICE_KIND` names.
    """

    torch_type: str
    """The type of `torch.device`."""
    one_per_worker: ClassVar[bool] = False
    """Whether each worker needs a device of its own."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of devices for workers that this process can see.

        It should not start the devices' runtime: a process forked later could not use them.
        """

    @abstractmethod
    def bind(self, placement: Placement) -> torch.device:
        """Make this worker's device the current one, and return it."""

    def identity(self, device: torch.device) -> DeviceIdentity:
        """Return what tells a device from others of its machine."""
        del device
        return DeviceIdentity()

    def is_lost_by_fork(self) -> bool:
        """Return whether this process cannot use devices, because it was forked from one that
        had used them."""
        return False

    @abstractmethod
    def title(self, device: torch.device, cores: int | None = None) -> str:
        """Return a device's name; for a CPU, with `cores` or this process's number of threads."""

    @abstractmethod
    def memory_bytes(self, device: torch.device, placement: Placement) -> int:
        """Return the memory that this worker may use on its device."""

    @abstractmethod
    def units(self, device: torch.device) -> int:
        """Return the number of multiprocessors or cores that compute."""

    def has_fp8(self, device: torch.device) -> bool:
        """Return whether it has matrix products in 8 bits."""
        del device
        return False

    def backend(self, device: torch.device) -> str:
        """Return the backend of its collectives; torch's default for this kind of device."""
        return dist.get_default_backend_for_device(device)

    def outlive_peers(self) -> None:  # noqa: B027 -- most kinds need nothing
        """Set what lets this process survive a lost peer, before it creates process groups."""

    def failure(self, device: torch.device, error: BaseException) -> str | None:
        """Return why this process can no longer use its device, if an error says so."""
        del device, error
        return None

    @abstractmethod
    def work_done(self, device: torch.device) -> float:
        """Return a number that grows by 1 or more per second while this process works.

        Not CPU time where threads spin while they wait for their device.
        """

    @abstractmethod
    def abort(self) -> None:
        """Abort all collectives in progress, from another thread, where the backend can."""

    @abstractmethod
    def synchronize(self, device: torch.device) -> None:
        """Wait until the device has finished all queued work."""

    def versions(self) -> dict[str, str]:
        """Return the versions of driver and libraries that this kind adds to torch's."""
        return {}

    def counted_waits(self) -> AbstractContextManager[Counter[str]] | None:
        """Count how often the host waits for the device during a block, by place or call; the
        counts are complete after the block. None where the host has nothing to wait for, or where
        waits cannot be counted."""
        return None

    def failure_injection(self) -> Callable[[torch.device], None] | None:
        """Return a function that makes this process's device fail, for good but for no other
        process; None where that is not possible."""
        return None


DEVICES: Registry[DeviceKind] = Registry(
    "device kind",
    group="paceline.devices",
    package="paceline.comm.devices",
    attribute="DEVICE",
    kind=DeviceKind,  # type: ignore[type-abstract]
)


@cache
def device_kind() -> DeviceKind:
    """Return the kind of device that this process computes on."""
    named = os.environ.get(KIND_VARIABLE)
    if named is not None:
        kind = DEVICES.get(named)
        if kind.count() == 0:
            raise PacelineError(
                f"{KIND_VARIABLE}={named} was set, but this machine has no such device",
                fix=f"unset {KIND_VARIABLE}, or run where the device is",
            )
        return kind
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return DEVICES.get("cpu")
    if accelerator.type not in DEVICES:
        raise PacelineError(
            f"torch finds {accelerator.type} devices, which no package of Paceline supports",
            fix=f"set {KIND_VARIABLE} to one of {', '.join(DEVICES.names)}",
        )
    return DEVICES.get(accelerator.type)
