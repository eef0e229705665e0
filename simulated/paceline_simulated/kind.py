"""The simulated device as a kind of device of Paceline: entry point `sim` of `paceline.devices`."""

import os

import paceline_simulated.collectives  # registers its backend with torch
import paceline_simulated.device  # noqa: F401 - registers it with torch
from paceline.comm.devices._accelerator import Accelerator


class Simulated(Accelerator):
    """Simulated devices, with `simccl`."""

    def outlive_peers(self) -> None:
        """Keep the watchdog and its monitor from ending this process, as on CUDA."""
        os.environ.setdefault("SIMCCL_ASYNC_ERROR_HANDLING", "0")
        os.environ.setdefault("SIMCCL_ENABLE_MONITORING", "0")


DEVICE = Simulated("sim")
