"""NVIDIA GPUs, and AMD's under ROCm, which torch calls cuda. Not run on hardware yet."""

import os

from paceline.comm.devices._accelerator import Accelerator


class Cuda(Accelerator):
    """GPUs with NCCL or RCCL."""

    def outlive_peers(self) -> None:
        """Keep torch's watchdog, and the monitor of the watchdog, from ending this process.

        The watchdog must not abort communicators either: only Paceline knows whether a step may
        count. A monitor ends the process even where the watchdog may not (pytorch issue 155916).
        """
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")


DEVICE = Cuda("cuda")
