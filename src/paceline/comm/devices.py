"""This worker's device and its communication backend.

The only module that knows about accelerators. CUDA, ROCm (which torch calls cuda) and XPU follow
torch's documentation and have not been run on hardware yet; the tests run on CPU.
"""

import os
import re
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.comm.torch_internals import abort_process_groups
from paceline.specs import PacelineError, Placement


def pick_device(placement: Placement) -> torch.device:
    """Return this worker's device: the accelerator of its local rank, or the CPU without one."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    count = torch.accelerator.device_count()
    # If the scheduler shows each task only its own device, that device has index 0.
    index = 0 if count == 1 and placement.device_bound else placement.local_rank
    if index >= count:
        raise PacelineError(
            f"{placement.node} has {count} {accelerator.type} devices, but"
            f" {placement.local_workers} workers were started on it",
            fix=f"use -n {count} (or --devices {count}), one worker per device",
        )
    torch.accelerator.set_device_index(index)
    return torch.device(accelerator.type, index)


def backend_for(device: torch.device) -> str:
    """Return torch's default backend for this kind of device: NCCL, XCCL or Gloo."""
    return dist.get_default_backend_for_device(device)


def use_interface(name: str) -> None:
    """Set the network interface of Gloo and NCCL, unless the user has set it."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def abort_exchanges() -> None:
    """Abort all NCCL collectives in progress, from another thread.

    Gloo has no such abort. Follows torch's documentation; not run on hardware yet.
    """
    if dist.is_initialized() and dist.get_backend() == "nccl":
        abort_process_groups()


def name_of(device: torch.device, cores: int | None = None) -> str:
    """Return a device's name; for a CPU, with `cores` or this process's number of threads."""
    if device.type != "cpu":
        return str(torch.get_device_module(device).get_device_name(device))
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cores = cores or torch.get_num_threads()
    model = found[1].strip() if found else "CPU"
    return f"{model}, {cores} core{'' if cores == 1 else 's'}"


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
