"""What accelerators share, through `torch.accelerator`."""

import torch
import torch.distributed as dist

from paceline.comm.device_kind import DeviceKind
from paceline.comm.group_errors import with_causes
from paceline.comm.torch_internals import abort_process_groups
from paceline.specs import PacelineError, Placement

_ASSERT = 710
"""`cudaErrorAssert` and `hipErrorAssert`: a check in a kernel failed, as for an index out of range.
The device is well, and every other one would fail, too."""


class Accelerator(DeviceKind):
    """A kind of accelerator that torch knows; one worker per device."""

    def __init__(self, type_: str) -> None:
        self._type = type_

    def count(self) -> int:
        """Return the number of visible devices; 0 where torch finds another accelerator."""
        found = torch.accelerator.current_accelerator(check_available=True)
        return torch.accelerator.device_count() if found and found.type == self._type else 0

    def bind(self, placement: Placement) -> torch.device:
        """Make the device with the worker's local rank the current one."""
        count = self.count()
        # If the scheduler shows each task only its own device, that device has index 0.
        index = 0 if count == 1 and placement.device_bound else placement.local_rank
        if index >= count:
            raise PacelineError(
                f"{placement.node} has {count} {self._type} devices, but"
                f" {placement.local_workers} workers were started on it",
                fix=f"use -n {count} (or --devices {count}), one worker per device",
            )
        torch.accelerator.set_device_index(index)
        return torch.device(self._type, index)

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

    def abort(self) -> None:
        """Abort the collectives of all process groups."""
        if dist.is_initialized():
            abort_process_groups()

    def synchronize(self, device: torch.device) -> None:
        """Wait until the device has finished all queued work."""
        torch.accelerator.synchronize(device)
