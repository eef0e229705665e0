"""What accelerators share, through `torch.accelerator`."""

import torch
import torch.distributed as dist

from paceline.comm.device_kind import DeviceIdentity, DeviceKind
from paceline.comm.group_errors import with_causes
from paceline.comm.torch_internals import abort_process_groups, in_bad_fork
from paceline.specs import PacelineError, Placement

_ASSERT = 710
"""`cudaErrorAssert` and `hipErrorAssert`: a check in a kernel failed, as for an index out of range.
The device is well, and every other one would fail, too."""


class Accelerator(DeviceKind):
    """A kind of accelerator that torch knows; one worker per device."""

    one_per_worker = True

    def __init__(self, type_: str) -> None:
        self.torch_type = type_

    def count(self) -> int:
        """Return the number of visible devices; 0 where torch finds another accelerator."""
        found = torch.accelerator.current_accelerator(check_available=True)
        return torch.accelerator.device_count() if found and found.type == self.torch_type else 0

    def bind(self, placement: Placement) -> torch.device:
        """Make the device with the worker's local rank the current one.

        If the scheduler shows each worker only its own devices, these start at index 0.
        """
        count = self.count()
        index = placement.local_rank
        if placement.device_bound and count:
            index %= count
        if index >= count:
            raise PacelineError(
                f"{placement.node} has {count} {self.torch_type} devices, but"
                f" {placement.local_workers} workers were started on it",
                fix=f"use -n {count} (or --devices {count}), one worker per device",
            )
        torch.accelerator.set_device_index(index)
        return torch.device(self.torch_type, index)

    def identity(self, device: torch.device) -> DeviceIdentity:
        """Return its UUID and PCI address, as far as torch knows them."""
        about = torch.get_device_module(device).get_device_properties(device)
        uuid = getattr(about, "uuid", None)
        address = None
        if hasattr(about, "pci_bus_id"):
            domain, bus, slot = about.pci_domain_id, about.pci_bus_id, about.pci_device_id
            address = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
        return DeviceIdentity(None if uuid is None else str(uuid), address)

    def is_lost_by_fork(self) -> bool:
        """Return whether this process was forked from one that had used the devices."""
        return in_bad_fork(self.torch_type)

    def title(self, device: torch.device, cores: int | None = None) -> str:
        """Return the device's name."""
        del cores
        return str(torch.get_device_module(device).get_device_name(device))

    def memory_bytes(self, device: torch.device, placement: Placement) -> int:
        """Return the memory of the device."""
        del placement
        return int(torch.get_device_module(device).get_device_properties(device).total_memory)

    def units(self, device: torch.device) -> int:
        """Return the number of multiprocessors."""
        about = torch.get_device_module(device).get_device_properties(device)
        return int(getattr(about, "multi_processor_count", 1))

    def failure(self, device: torch.device, error: BaseException) -> str | None:
        """Return the first error of a device that does not even answer any more.

        A call that was refused, such as a launch of too many threads, leaves the device usable.
        """
        found = [each for each in with_causes(error) if isinstance(each, torch.AcceleratorError)]
        if not found or any(getattr(each, "error_code", None) == _ASSERT for each in found):
            return None
        try:
            torch.accelerator.current_stream(device).query()
        except torch.AcceleratorError:
            return (str(found[-1]).splitlines() or ["no reason given"])[0]
        return None

    def work_done(self, device: torch.device) -> float:
        """Return the number of memory allocations on the device: nearly every operator makes one,
        and waiting makes none."""
        return float(torch.accelerator.memory_stats(device).get("allocation.all.allocated", 0))

    def abort(self) -> None:
        """Abort the collectives of all process groups."""
        if dist.is_initialized():
            abort_process_groups()

    def synchronize(self, device: torch.device) -> None:
        """Wait until the device has finished all queued work."""
        torch.accelerator.synchronize(device)
