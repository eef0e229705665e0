"""NVIDIA GPUs, and AMD's under ROCm, which torch calls cuda. Not run on hardware yet."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.profiler import ProfilerActivity, profile

from paceline.cluster.visible_devices import mig_instances
from paceline.comm.devices._accelerator import Accelerator
from paceline.comm.torch_internals import compile_kernel
from paceline.observe.usage.gpus import opened_nvml

_WAITS = re.compile(r"(cuda|hip)((Device|Stream|Event)Synchronize|Memcpy(WithStream)?)")
"""Calls of the runtime that block the host. torch's own blocking copies are an asynchronous copy
and a `StreamSynchronize`."""


class Cuda(Accelerator):
    """GPUs with NCCL or RCCL."""

    def count(self) -> int:
        """Return the number of visible GPUs, or of MIG instances.

        A process sees only the first of these; each worker is shown its own.
        """
        return len(mig_instances()) or super().count()

    def outlive_peers(self) -> None:
        """Keep torch's watchdog, and the monitor of the watchdog, from ending this process.

        The watchdog must not abort communicators either: only Paceline knows whether a step may
        count. A monitor ends the process even where the watchdog may not (pytorch issue 155916).
        """
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")

    def versions(self) -> dict[str, str]:
        """Return the versions of CUDA or ROCm, NCCL or RCCL, and the driver."""
        found = {"cuda": torch.version.cuda, "hip": torch.version.hip}
        version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        found["nccl"] = ".".join(map(str, version))
        nvml = opened_nvml()
        if nvml is not None:
            found["driver"] = nvml.ask("nvmlSystemGetDriverVersion")
        return {name: str(version) for name, version in found.items() if version}

    def has_fp8(self, device: torch.device) -> bool:
        """Return whether it is of the generation of H100, L40 or MI300, or later."""
        return torch.cuda.get_device_capability(device) >= ((9, 4) if torch.version.hip else (8, 9))

    def counted_waits(self) -> AbstractContextManager[Counter[str]]:
        """Count the runtime's blocking calls, by torch's profiler."""
        return _profiled_waits()

    def failure_injection(self) -> Callable[[torch.device], None] | None:
        """Return a function that makes a kernel write to an address that nobody owns."""
        return None if torch.version.hip else _write_astray


@contextmanager
def _profiled_waits() -> Iterator[Counter[str]]:
    found: Counter[str] = Counter()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        yield found
    names = [event.name for event in profiled.events() or ()]
    found.update(name for name in names if _WAITS.fullmatch(name))


def _write_astray(device: torch.device) -> None:
    """Queue the kernel: every later call on the device raises cudaErrorIllegalAddress."""
    source = 'extern "C" __global__ void astray() { *(volatile int*)8 = 1; }'
    with torch.cuda.device(device):
        compile_kernel(source, "astray")()


DEVICE = Cuda("cuda")
