"""The CPU: each worker has its part of the node's cores and memory."""

import re
from pathlib import Path

import psutil
import torch

from paceline.cluster.process import compute_seconds
from paceline.comm.device_kind import DeviceKind
from paceline.specs import Placement


class Cpu(DeviceKind):
    """The CPU of this machine."""

    torch_type = "cpu"

    def count(self) -> int:
        """Return 1: all workers of a node share its CPU."""
        return 1

    def bind(self, placement: Placement) -> torch.device:
        """Return the CPU."""
        del placement
        return torch.device("cpu")

    def title(self, device: torch.device, cores: int | None = None) -> str:
        """Return the processor's model and the number of cores."""
        del device
        text = Path("/proc/cpuinfo").read_text()
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        cores = cores or torch.get_num_threads()
        model = found[1].strip() if found else "CPU"
        return f"{model}, {cores} core{'' if cores == 1 else 's'}"

    def memory_bytes(self, device: torch.device, placement: Placement) -> int:
        """Return this worker's part of the job's memory on its node."""
        del device
        total = psutil.virtual_memory().total
        if placement.node_memory_bytes is not None:
            total = min(total, placement.node_memory_bytes)
        return int(total // placement.local_workers)

    def units(self, device: torch.device) -> int:
        """Return the number of threads that compute."""
        del device
        return torch.get_num_threads()

    def work_done(self, device: torch.device) -> float:
        """Return the CPU seconds of this process."""
        del device
        return compute_seconds()

    def abort(self) -> None:
        """Do nothing: Gloo cannot abort; its connections are shut instead."""

    def synchronize(self, device: torch.device) -> None:
        """Return at once: a CPU has no queue."""


DEVICE = Cpu()
