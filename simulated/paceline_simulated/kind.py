"""The simulated device as a kind of device of Paceline: entry point `sim` of `paceline.devices`."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

import paceline_simulated.collectives  # registers its backend with torch
import paceline_simulated.device  # noqa: F401 - registers it with torch
from paceline.comm.devices._accelerator import Accelerator
from paceline_simulated import core
from paceline_simulated.waits import host_waits


class Simulated(Accelerator):
    """Simulated devices, with `simccl`."""

    def outlive_peers(self) -> None:
        """Keep the watchdog and its monitor from ending this process, as on CUDA."""
        os.environ.setdefault("SIMCCL_ASYNC_ERROR_HANDLING", "0")
        os.environ.setdefault("SIMCCL_ENABLE_MONITORING", "0")

    def counted_waits(self) -> AbstractContextManager[Counter[str]]:
        """Count waits by their line of Python."""
        return _counted()

    def failure_injection(self) -> Callable[[torch.device], None]:
        """Return a function that makes a device sick."""
        return lambda device: core.sicken(device.index)


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    found: Counter[str] = Counter()
    before = host_waits()
    yield found
    for wait, count in (host_waits() - before).items():
        found[f"{wait.kind} in {wait.function}"] += count


DEVICE = Simulated("sim")
